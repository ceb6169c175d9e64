# SPDX-License-Identifier: Apache-2.0
"""The one tree of errors.

Every error a user can meet carries a message that says what is wrong and a hint that says what to do.
The command line prints both, without a traceback, and ends with the error's exit code.
"""

import contextlib
import difflib
import errno
from collections.abc import Collection, Iterator
from enum import IntEnum

_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class ExitCode(IntEnum):
    """Exit code of a command."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    INFRASTRUCTURE = 3


VERDICTS = (ExitCode.PASSED, ExitCode.FAILED)
"""Exit codes that state a verdict; an interruption at that moment does not change them."""


class UtvmError(Exception):
    """Base of all errors of this project.

    Args:
        message: what is wrong, one sentence, naming the file, board or value.
        hint: what the user can do about it, or an empty string.
    """

    usual_exit_code = ExitCode.INFRASTRUCTURE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def exit_code(self) -> ExitCode:
        """Exit code; running out of file handles or memory is always an infrastructure failure."""
        cause = self.__cause__
        scarce = isinstance(cause, OSError) and cause.errno in _SCARCE
        return ExitCode.INFRASTRUCTURE if scarce else self.usual_exit_code

    @classmethod
    @contextlib.contextmanager
    def on(cls, kinds: type[Exception] | tuple[type[Exception], ...], message: str, hint: str = "") -> Iterator[None]:
        """Raise this error for others of a ``with`` block; their text follows a ``message`` that ends with a colon."""
        try:
            yield
        except kinds as error:
            raise cls(f"{message} {error}" if message.endswith(":") else message, hint) from error

    @classmethod
    @contextlib.contextmanager
    def on_os_error(cls, subject: str, hint: str = "") -> Iterator[None]:
        """Raise this error for an OSError of a ``with`` block; the system's reason follows ``subject``."""
        try:
            yield
        except OSError as error:
            raise cls(f"{subject}: {error.strerror or error}", hint) from error

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


def did_you_mean(wrong: str, known: Collection[str], otherwise: str) -> str:
    """Return a hint that suggests the closest known name, if any, followed by ``otherwise``."""
    like = difflib.get_close_matches(wrong, known, 1)
    return f"did you mean {like[0]}? {otherwise}" if like else otherwise


class ConfigError(UtvmError):
    """An invalid file, option or model path."""

    usual_exit_code = ExitCode.USAGE


class CompileError(UtvmError):
    """A model that cannot be compiled."""

    usual_exit_code = ExitCode.USAGE


class DoesNotFitError(CompileError):
    """Firmware that needs more memory than the board has."""


class ToolchainError(UtvmError):
    """A cross compiler is missing, or it rejected its input."""


class ProbeError(UtvmError):
    """A debug probe, or the OpenOCD that drives it, failed."""


class BoardError(UtvmError):
    """A board does not answer, is busy, or took a fault."""


class TransportError(UtvmError):
    """The connection to a board broke."""


class ProvisionError(UtvmError):
    """This computer lacks something that the environment needs."""
