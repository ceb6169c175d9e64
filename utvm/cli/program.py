# SPDX-License-Identifier: Apache-2.0
"""The program behind ``./inv`` and ``utvm``: Invoke, with commands and options in groups, and shell completion.

An invalid command line exits with the code for wrong usage, a message of ours and a hint.
"""

import ast
import contextlib
import difflib
import functools
import io
import itertools
import re
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from invoke.exceptions import Exit, ParseError
from invoke.parser import Parser
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.program import Program
from invoke.terminals import pty_size

from utvm import boards
from utvm.base import log
from utvm.cli import Command
from utvm.cli.output import OUT, STDOUT
from utvm.errors import ConfigError, ExitCode, did_you_mean
from utvm.paths import COMMAND, INSTALLED

# Invoke's options that utvm does not need: they have no letter and are not in help.
_HIDDEN = {
    "command-timeout", "complete", "config", "dry", "echo", "hide", "prompt-for-sudo-password", "pty", "warn-only",
    "write-pyc",
}  # fmt: skip


_NAME = Path(COMMAND).name
_FEW_OPTIONS = 8
# In the order of use, as their options; others follow in the order of a command's parameters.
_OPTION_GROUPS = {
    "Model and data": ("model", "input", "inputs", "samples", "labels", "set", "run-python"),
    "Board": ("board", "virtual", "physical", "serial", "wait", "cycles"),
    "Options": (),
    "Location": ("in", "tags", "usb"),
}


class Inv(Program):
    """Invoke's program, with the commands in groups.

    Args:
        groups: names of commands by group title; namespaces end in a dot.
        settings: Invoke's own.
    """

    def __init__(self, *, groups: Mapping[str, Sequence[str]], **settings: Any) -> None:
        super().__init__(**settings)
        self._groups = groups

    def core_args(self) -> list[Argument]:
        ours = [
            Argument(names=("log-level",), help=f"Log {log.LEVELS}; default: the environment's {log.VARIABLE}."),
            Argument(names=("log-file",), help="Log into this file: everything, unless --log-level limits it."),
            Argument(names=("board-path",), help="Folders with boards of your own, separated by colons."),
            Argument(names=("json", "j"), optional=True, help="Write results as JSON to this file, or print them."),
        ]
        theirs = super().core_args()
        for argument in theirs:
            if argument.names[0] in _HIDDEN:
                argument.names = argument.names[:1]
        return [*theirs, *ours]

    @property
    def _commands(self) -> Collection[str]:
        return self.namespace.task_names if self.namespace else ()

    def execute(self) -> None:
        try:
            log.configure(self.args["log-level"].value or "", self.args["log-file"].value or "")
            if folders := self.args["board-path"].value:
                boards.set_board_path(folders)
            if target := self.args["json"].value:
                for context in self.tasks:
                    if context.name and not self._command(context.name).json:
                        raise ConfigError(f"{context.name} has no results for --json", "leave it out")
                OUT.send_json(target)
        except ConfigError as error:
            error.hint = error.hint or f"{COMMAND} --help"
            raise Exit(f"error: {error}", int(error.exit_code)) from None
        super().execute()

    def parse_core(self, argv: list[str] | None) -> None:
        words = sys.argv if argv is None else argv
        if not {"-h", "--help"}.isdisjoint(words):
            # After a command that takes a FILE, Invoke would take it for the file.
            words = [words[0], "--help", *[word for word in words if word in self._commands][:1]]
        if "--complete" in words:
            # Invoke expects the program without its folder.
            words = [_NAME if word == COMMAND else word for word in words]
        for index, following in enumerate(words[1:]):
            if words[index] in ("--json", "-j") and following in self._commands:
                words = [*words[:index], f"--json={STDOUT}", *words[index + 1 :]]
        script = io.StringIO()
        is_completion = any(word.startswith("--print-completion-script") for word in words)
        try:
            with contextlib.redirect_stdout(script) if is_completion else contextlib.nullcontext():
                super().parse_core(words)
        except ParseError as error:
            raise self._usage(error) from None
        finally:
            # A checkout is not in PATH.
            text = re.sub(rf"\b{_NAME} (.*--complete)", rf"{COMMAND} \1", script.getvalue())
            print(text.replace(" --no-files", ""), end="")
        # Invoke enables writing bytecode each time. An installed utvm may belong to another user.
        sys.dont_write_bytecode = INSTALLED or bool(sys.flags.dont_write_bytecode)

    def parse_tasks(self) -> None:
        try:
            self.core.unparsed = self._files_first(self.core.unparsed)
            super().parse_tasks()
        except (ConfigError, ParseError, ValueError) as error:
            raise self._usage(error) from None

    def _files_first(self, words: list[str]) -> list[str]:
        """Move common options before a command, and its required ones directly after it.

        Invoke would take a common option for a missing FILE, and cannot tell what a word belongs to after an
        option with an optional value.
        """
        first = next((index for index, word in enumerate(words) if word in self._commands), None)
        if first is None:
            return words
        common, after = self._split_common(words[first], words[first + 1 :])
        self._check_options(words[first], after)
        before = [*words[:first], *common, words[first]]
        if self._command(words[first]).several:
            after = self._join_files(words[first], after)
        if self._command(words[first]).file_optional and not self._find_files(words[first], after):
            before.append(f"--{next(iter(self._command(words[first]).positional))}=")
        for name in self._command(words[first]).positional:
            flag = f"--{name.replace('_', '-')}"
            for index, word in enumerate(after):
                if word == flag or word.startswith(f"{flag}="):
                    end = index + (2 if word == flag else 1)
                    before += after[index:end]
                    del after[index:end]
                    break
        return before + after

    def _check_options(self, name: str, words: list[str]) -> None:
        """Refuse an unknown option, which Invoke would take for a missing FILE, and a value that is no number."""
        flags = {**self.initial_context.flags, **self._flags(name)}
        for before, word in itertools.pairwise(["", *words]):
            if before in flags and flags[before].takes_value:
                flag, value = before, word
            elif word.startswith("--"):
                flag, _, value = word.partition("=")
                if flag not in flags:
                    raise ParseError(f"No idea what {word!r} is!", self._parser.contexts[name])
                if value and not flags[flag].takes_value:
                    raise ConfigError(f"{flag} takes no value", f"{COMMAND} {name} --help")
            elif word in self._commands:
                break
            elif self._is_board_for_file(name, word):
                raise ConfigError(f"{name}: {word!r} is a board, not a file", f"did you mean --board {word}?")
            else:
                continue
            if value and flags[flag].kind in (int, float) and not _is_number(flags[flag].kind, value):
                whole = "whole " if flags[flag].kind is int else ""
                raise ConfigError(f"{flag} {value!r} is not a {whole}number", f"{COMMAND} {name} --help")

    def _is_board_for_file(self, name: str, word: str) -> bool:
        takes_file = bool({"model", "elf"} & {*self._command(name).positional})
        return takes_file and word in boards.names() and not Path(word).exists()

    @functools.cached_property
    def _parser(self) -> Parser:
        return super()._make_parser()

    def _make_parser(self) -> Parser:
        return self._parser

    def _flags(self, name: str) -> Mapping[str, Argument]:
        return cast(Mapping[str, Argument], self._parser.contexts[name].flags)

    def _split_common(self, name: str, words: list[str]) -> tuple[list[str], list[str]]:
        """Separate common options, with their values, from the words after a command."""
        own, flags = self._flags(name), self.initial_context.flags
        common: list[str] = []
        others: list[str] = []
        left = list(words)
        while left:
            word = left.pop(0)
            flag, equals, value = word.partition("=")
            option = flags[flag] if flag in flags and flag not in own else None  # get() knows no letters
            follows = bool(left) and not left[0].startswith("-")
            if option is None or (option.takes_value and not option.optional and not equals and not follows):
                others.append(word)
            elif not option.takes_value:
                common.append(word)
            else:
                # A model after --json is the command's file and must not be overwritten.
                if not equals and follows and not (option.optional and self._is_file(name, others, left)):
                    value = left.pop(0)
                common.append(f"--{option.name}={value or STDOUT}")
        return common, others

    def _is_file(self, name: str, before: list[str], after: list[str]) -> bool:
        """True if the first word after an option is the command's file, because no other word names one."""
        command = self._command(name)
        positional = {f"--{file.replace('_', '-')}" for file in command.positional}
        if not positional or positional & {word.partition("=")[0] for word in before + after}:
            return False
        return not self._find_files(name, before if command.several else before + after[1:])

    def _find_files(self, name: str, words: list[str], *, first: bool = False) -> list[int]:
        """Return the positions of words that are neither options nor values; ``first`` prefers the first file to a
        value that may be left out.
        """
        flags, files, is_value = self._flags(name), list[int](), False
        for index, word in enumerate(words):
            if not is_value and not word.startswith("-"):
                files.append(index)
            option = flags[word] if not is_value and word in flags else None
            is_value = option is not None and option.takes_value and not (option.optional and first and not files)
        return files

    def _join_files(self, name: str, words: list[str]) -> list[str]:
        """Return the words after a command that takes several files, joined to one in front."""
        # After an option with an optional value, the first word is a file, which must not be overwritten.
        files = self._find_files(name, words, first=True)
        joined = [",".join(words[index] for index in files)] if files else []
        return joined + [word for index, word in enumerate(words) if index not in files]

    def parse_cleanup(self) -> None:
        if self.args.complete.value and (values := completions(self.core.remainder.split()[1:])):
            print(*values, sep="\n")
            raise Exit
        try:
            super().parse_cleanup()
        except Exit as error:
            # Invoke's code for an unknown namespace is 1, which here means that a test failed.
            raise Exit(f"error: {error.message}", int(ExitCode.USAGE)) if error.code == 1 else error from None

    def _usage(self, error: Exception) -> Exit:
        context: ParserContext | None = getattr(error, "context", None)
        if (
            context
            and context.name
            and "No idea what" not in str(error)
            and (missing := [str(argument.name) for argument in context.missing_positional_args])
        ):
            names = " and ".join(name.upper() for name in missing)
            example = self._command(context.name).example
            return Exit(f"error: {context.name} needs {names}\n  hint: {COMMAND} {example}", int(ExitCode.USAGE))
        is_ours = isinstance(error, ConfigError)
        refusal = error if is_ours else explain(error, context, self.core.unparsed, self._commands, _HIDDEN)
        return Exit(f"error: {refusal}", int(ExitCode.USAGE))

    def _command(self, name: str) -> Command:
        return cast(Command, self.collection[name])

    def print_help(self) -> None:
        print(f"Usage: {COMMAND} COMMAND [options]; {COMMAND} COMMAND --help shows its options\n")
        self.list_tasks()
        print("Options of every command:\n")
        self.print_columns([row for row in self.initial_context.help_tuples() if _long(row[0]) not in _HIDDEN])

    def print_task_help(self, name: str) -> None:
        context = self.parser.contexts[name]
        command = self._command(name)
        files = "".join(f" {argument.name.upper()}" for argument in context.positional_args)
        files = f" [{files.strip()}]" if command.file_optional else files
        files += "..." if command.several else ""
        print(f"Usage: {COMMAND} {name}{files} [options]\n")
        print(textwrap.fill(f"{command.__doc__}", pty_size()[0] - 1) + "\n")
        for title, options in _group_options(context).items():
            print(f"{title}:\n")
            self.print_columns(options)
        if command.json:
            print("JSON:    --json prints the results as JSON, --json=FILE writes them")
        print(f"Example: {COMMAND} {command.example}")
        if command.page:
            print(f"More:    {command.page}")

    def list_flat(self) -> None:
        if self.list_root or self.list_depth:
            super().list_flat()
            return
        left = dict(self._make_pairs(self.scoped_collection))
        width = max(map(len, left))
        for title, names in self._groups.items():
            commands = [command for name in names for command in left if command == name or _within(command, name)]
            print(f"{title}:\n")
            self.print_columns([(command.ljust(width), left.pop(command)) for command in commands])
        assert not left, f"tasks.py puts {', '.join(left)} into no group"


def _group_options(context: ParserContext) -> dict[str, list[tuple[str, str]]]:
    """Sort a command's options into groups; a short list stays one group."""
    titles = {name: title for title, names in _OPTION_GROUPS.items() for name in names}
    order = [*titles]
    groups: dict[str, list[tuple[str, str]]] = {title: [] for title in _OPTION_GROUPS}
    flags = sorted(context.flags, key=lambda flag: order.index(flag[2:]) if flag[2:] in titles else len(order))
    for flag in flags:
        spelling, text = context.help_for(flag)
        if context.flags[flag].kind in (float, list):  # Invoke shows no value.
            spelling += "=NUMBER" if context.flags[flag].kind is float else "=STRING"
        groups[titles.get(flag[2:], "Options") if len(flags) > _FEW_OPTIONS else "Options"].append((spelling, text))
    return {title: options for title, options in groups.items() if options}


def _is_number(kind: type, text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _within(command: str, namespace: str) -> bool:
    return namespace.endswith(".") and command.startswith(namespace)


def _long(flags: str) -> str:
    return re.sub(r"[\[=].*", "", flags.rpartition("--")[2])


def explain(
    error: Exception,
    context: ParserContext | None,
    words: Sequence[str],
    commands: Collection[str],
    hidden: Collection[str],
) -> ConfigError:
    """Return the error for a refused command line.

    Args:
        error: Invoke's exception.
        context: the command that was being read, or the options of every command.
        words: the command line.
        commands: names of all commands.
        hidden: options that help does not show.
    """
    text = str(error)
    flags = [flag for flag in (context.flags if context else ()) if flag.lstrip("-") not in hidden]
    command = str(context.name or "") if context else ""
    help_ = f"{COMMAND} {command} --help".replace("  ", " ")
    option = re.search(r"Flag <Argument: (\w[\w-]*)", text)
    quoted = re.search("^(?:No idea what )?(['\"].+['\"]) is", text, re.DOTALL)
    word = str(ast.literal_eval(quoted[1])) if quoted else ""
    if option:
        flag = f"--{option[1].rstrip('_').replace('_', '-')}"
        values = ", ".join(_values(flag, ""))
        message = f"{flag} needs a value" if "needed value" in text else f"{flag} takes no value"
        hint = f"one of {values}" if values and "needed value" in text else help_
    elif "ambiguous" in text:
        message = f"it is not clear what {word!r} belongs to"
        hint = "name the FILE first, or put = before the option's value: --wait=5"
    elif word.startswith("-"):
        message, hint = f"{command or COMMAND} has no option {word}", did_you_mean(word, flags, help_)
    elif word and not command:
        message, hint = f"there is no command {word!r}", _nearest_command(word, commands)
    elif word:
        message, hint = f"{command} does not take {word!r}", did_you_mean(word, commands, help_)
        name, colon, settings = word.partition(":")
        for flag in ("--board", "--suite"):
            if flag in flags and (near := difflib.get_close_matches(name, [*_values(flag, "")], 1)):
                hint = f"did you mean {flag} {near[0]}{colon}{settings}?"
        if twice := _find_repeated(word, words, context.flags if context else {}):
            hint = f"{twice} is given twice: give it once, with commas between values where it takes several"
    else:
        message, hint = text, help_
    return ConfigError(message, hint)


def _nearest_command(word: str, commands: Collection[str]) -> str:
    if word in _values("--board", ""):
        return f"did you mean {COMMAND} hil --board {word}?"
    if word.endswith((".onnx", ".tflite")):
        return f"did you mean {COMMAND} model.run {word}?"
    same = [command for command in commands if command.endswith(f".{word}")]
    return f"did you mean {', '.join(same)}?" if same else did_you_mean(word, commands, f"{COMMAND} --list")


def completions(words: Sequence[str]) -> list[str]:
    """Return values for the last option of an unfinished command line; without any, the shell completes files."""
    if not words:
        return []
    # Bash splits words at colons, too.
    joined = re.sub(" ?: ?", ":", " ".join(words)).split(" ")
    flag, prefix = (joined[-1], "") if joined[-1].startswith("-") else ("".join(joined[-2:-1]), joined[-1])
    return list(_values({"-b": "--board"}.get(flag, flag), prefix))


def _values(flag: str, prefix: str) -> Iterator[str]:
    if flag in ("--board", "--boards"):
        name, colon, _ = prefix.rpartition(",")[2].partition(":")
        if not colon:
            yield from boards.names()
        with contextlib.suppress(ConfigError):
            for setting, values in boards.load(name).choices.items() if colon else ():
                for value in values:
                    yield from (f"{setting}={value}", f"{name}:{setting}={value}")
    elif flag == "--suite":
        from utvm.hil.project import suite_names

        yield from suite_names()
    elif flag == "--in":
        from utvm.provenance.location import KINDS

        yield from KINDS


def _find_repeated(value: str, words: Sequence[str], flags: Mapping[str, object]) -> str:
    """Return the option given twice, whose second value Invoke takes for a command."""
    split = [part for word in words for part in word.split("=", 1)]
    options = (before for before, word in itertools.pairwise(split) if word == value and before in flags)
    return next((option for option in options if split.count(option) > 1), "")
