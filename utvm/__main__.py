# SPDX-License-Identifier: Apache-2.0
"""The program behind ``./inv`` and ``utvm``: Invoke, with the tasks of ``tasks.py``, wherever it is called."""

import difflib
import re
import sys
from collections.abc import Collection
from pathlib import Path

from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.program import Program

import utvm
from utvm import log
from utvm.cli import end_of
from utvm.errors import ConfigError, ExitCode
from utvm.paths import COMMAND, DATA, INSTALLED
from utvm.process import end_in_order_on_signals, end_undisturbed

_NAME = Path(COMMAND).name


class _Inv(Program):
    """Invoke's program; a command line that cannot be understood ends with the exit code for wrong usage."""

    def core_args(self) -> list[Argument]:
        return [
            *super().core_args(),
            Argument(names=("log-level",), help=f"Log {log.LEVELS}; default: the environment's {log.VARIABLE}."),
            Argument(names=("log-file",), help="Log into this file, all unless --log-level says less."),
        ]

    @property
    def _commands(self) -> Collection[str]:
        return self.namespace.task_names if self.namespace else ()

    def execute(self) -> None:
        try:
            log.begin(self.args["log-level"].value or "", self.args["log-file"].value or "")
        except ConfigError as error:
            raise Exit(f"error: {error}", int(error.exit_code)) from None
        super().execute()

    def parse_core(self, argv: list[str] | None) -> None:
        words = sys.argv if argv is None else argv
        if not {"-h", "--help"}.isdisjoint(words):
            # Behind a command that takes a FILE, Invoke would take it for one; and -h may be short for an option.
            words = [words[0], "--help", *[word for word in words if word in self._commands][:1]]
        try:
            super().parse_core(words)
        except ParseError as error:
            raise self._usage(error) from None

    def parse_tasks(self) -> None:
        try:
            super().parse_tasks()
        except (ParseError, ValueError) as error:
            raise self._usage(error) from None

    def _usage(self, error: Exception) -> Exit:
        """Return the end of a command line that is not understood, with what may have been meant."""
        context = getattr(error, "context", None)
        known = [*self._commands, *(context.flags if context else ())]
        wrong = re.search("'(.+?)'", str(error))
        like = difflib.get_close_matches(wrong[1], known, 1) if wrong else []
        hint = f"did you mean {like[0]}?" if like else f"{COMMAND} --list shows the commands"
        return Exit(f"error: {error}\n  hint: {hint}", int(ExitCode.USAGE))


def _run() -> None:
    sys.path.insert(0, str(DATA))
    tasks = __import__("tasks")
    del sys.path[0]
    if INSTALLED:
        # Where it lies may belong to somebody else.
        sys.dont_write_bytecode = True
    _Inv(name=_NAME, binary=_NAME, namespace=tasks.namespace, version=utvm.__version__).run()


def main() -> None:
    end_in_order_on_signals()
    try:
        try:
            _run()
        finally:
            end_undisturbed()
    except (SystemExit, KeyboardInterrupt) as end:
        # Invoke turns an interruption outside of a task into exit code 1, which here means that a test failed.
        if isinstance(end, KeyboardInterrupt) or isinstance(end.__context__, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
            sys.exit(int(ExitCode.INFRASTRUCTURE))
        raise
    except Exception as error:  # before a command has begun: too few files, too little memory
        how = end_of(error)
        print(how.message, file=sys.stderr)
        sys.exit(how.code)


if __name__ == "__main__":
    main()
