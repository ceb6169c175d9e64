# SPDX-License-Identifier: Apache-2.0
"""Error messages for command lines that Invoke's parser refuses, and values for shell completion."""

import ast
import contextlib
import difflib
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from invoke.parser.context import ParserContext

from utvm import boards
from utvm.errors import ConfigError, did_you_mean
from utvm.paths import COMMAND


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
