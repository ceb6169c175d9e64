# SPDX-License-Identifier: Apache-2.0
"""The log: the standard ``logging``, one tree of loggers below ``utvm``, with a branch for each thing to look for.

Modules log to their branch with ``logging.getLogger``, by the names in :data:`BRANCHES`. This module says where it
goes. :func:`begin` takes the user's wish, once for a process; :func:`kept_in` keeps everything, at debug level, in
the folder of a run. Where nobody listens a branch is off, and what a packet would look like is not worked out.

Much of what is logged was said by a stranger, a board or a program. A record is one line whatever is in it:
what cannot be printed is written as an escape.
"""

import contextlib
import logging
import os
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TextIO

from utvm.base.text.names import printable
from utvm.errors import ConfigError

BRANCHES: Mapping[str, str] = {
    "utvm.cache": "what was made before and what was not, and why",
    "utvm.compiler": "what is compiled, for what, and what decides whether it has to be",
    "utvm.compiler.notes": "what became of each operator of a model, and why",
    "utvm.environment": "what became of what the environment is made of",
    "utvm.hil": "which test begins",
    "utvm.probe.gdb": "packets to and from a GDB server",
    "utvm.probe.openocd": "what OpenOCD says",
    "utvm.probe.pyocd": "what pyOCD says",
    "utvm.probe.relay": "work that a relay in front of an emulator has a model do",
    "utvm.process": "what is started, and how it ended",
    "utvm.session.board": "what a board says by itself over RPC",
    "utvm.session.rpc": "frames to and from a board's RPC server",
    "utvm.session.serve": "clients of a served board: who comes, who goes, what goes wrong",
}
"""Every branch, and what is said there."""

VARIABLE = "UTVM_LOG"
FILE = "utvm.log"
LEVELS = "a level (debug, info, warning, error), or BRANCH=LEVEL,... for branches of their own"

_ROOT = "utvm"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FORM = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"
_MOST_SHOWN = 120  # Bytes of a packet: its kind and address, not all of an image.


class Shown:
    """The beginning of some bytes and how many there are, worked out when a record is written."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __str__(self) -> str:
        shown = printable(self._data[:_MOST_SHOWN].decode("latin-1"))
        rest = len(self._data) - _MOST_SHOWN
        return f"{shown} ... ({len(self._data)} bytes)" if rest > 0 else shown


def _make_safe(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), None
    return True


for _name in BRANCHES:
    logging.getLogger(_name).addFilter(_make_safe)


class _Wish:
    """How much is to be said in which branch."""

    def __init__(self, level: int, branches: Mapping[str, int]) -> None:
        self._levels = {_ROOT: level, **branches}

    @property
    def branches(self) -> frozenset[str]:
        return frozenset(self._levels)

    def level(self, name: str) -> int:
        """Return the level of the branch that a logger is in: of the longest name that its own begins with."""
        while name not in self._levels:
            name = name.rpartition(".")[0]
        return self._levels[name]

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= self.level(record.name)


_handlers: dict[logging.Handler, _Wish] = {}
_begun = threading.Event()


def begin(levels: str, file: str) -> None:
    """Send the log where the user wants it: the first time in a process; later, nothing.

    Args:
        levels: as :data:`LEVELS` says; empty for the environment's ``UTVM_LOG``, or without that for everything
            where there is a file, else for warnings.
        file: where to write, from its beginning; empty for standard error.
    """
    if _begun.is_set():
        return
    given = levels or os.environ.get(VARIABLE, "")
    wish = _understood(given, "--log-level" if levels else VARIABLE) if given else None
    warnings = _Wish(logging.WARNING, {})
    if file:
        _attach(_file_handler(Path(file), "w"), wish or _Wish(logging.DEBUG, {}))
    # A warning is for whoever sits here, wherever the log goes.
    _attach(logging.StreamHandler(_standard_error()), warnings if file else wish or warnings)
    _begun.set()


@contextlib.contextmanager
def log_into(folder: Path) -> Iterator[None]:
    """Keep all that is logged meanwhile in the file ``utvm.log`` of a folder."""
    handler = _file_handler(folder / FILE, "a")
    _attach(handler, _Wish(logging.DEBUG, {}))
    try:
        yield
    finally:
        _detach(handler)


@contextlib.contextmanager
def capture(branch: str) -> Iterator[list[str]]:
    """Gather the messages of a branch, of all levels, that are logged meanwhile."""
    lines: list[str] = []
    handler = _Gatherer(lines)
    _attach(handler, _Wish(logging.CRITICAL, {branch: logging.DEBUG}))
    try:
        yield lines
    finally:
        _detach(handler)


class _Gatherer(logging.Handler):
    """Keeps messages as they are."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


class _File(logging.FileHandler):
    """A log that cannot be written any more is said once; it is no reason to end a run."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        if self not in _handlers:
            return
        _detach(self)
        print(f"the log {self.baseFilename} ends here: {sys.exc_info()[1]}", file=sys.stderr)


def _file_handler(path: Path, mode: Literal["a", "w"]) -> logging.Handler:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _File(path, mode, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigError(
            f"{path}: the log cannot be written: {error.strerror or error}", "choose another file"
        ) from error


def _standard_error() -> TextIO:
    """Return a stream that a test runner's capture does not take over."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", buffering=1, errors="backslashreplace")
    except OSError:  # It has no file descriptor where a program has put something else in its place.
        return sys.stderr


def _understood(text: str, option: str) -> _Wish:
    everywhere, branches = logging.WARNING, {}
    for word in text.split(","):
        name, told, level = word.strip().rpartition("=")
        if level.lower() not in _LEVELS:
            raise ConfigError(f"{option}: {level!r} is no level", f"use {', '.join(_LEVELS)}")
        branch = name if name == _ROOT or name.startswith(f"{_ROOT}.") else f"{_ROOT}.{name}"
        if not told or branch == _ROOT:
            everywhere = _LEVELS[level.lower()]
        elif any(known == branch or known.startswith(f"{branch}.") for known in BRANCHES):
            branches[branch] = _LEVELS[level.lower()]
        else:
            raise ConfigError(f"{option}: there is no branch {name!r}", f"there are: {', '.join(BRANCHES)}")
    return _Wish(everywhere, branches)


def _attach(handler: logging.Handler, wish: _Wish) -> None:
    handler.setFormatter(logging.Formatter(_FORM, "%Y-%m-%d %H:%M:%S"))
    handler.addFilter(wish.filter)
    _handlers[handler] = wish
    root = logging.getLogger(_ROOT)
    root.addHandler(handler)
    # The program around us, whose own log it is above, has not asked for every packet.
    root.propagate = False
    _set_levels()
    words = f"this is process {os.getpid()}: {shlex.join(sys.argv)}"
    handler.handle(logging.LogRecord("utvm.process", logging.INFO, __file__, 0, printable(words), None, None))


def _detach(handler: logging.Handler) -> None:
    logging.getLogger(_ROOT).removeHandler(handler)
    _handlers.pop(handler, None)
    # Closing writes what is left: that may be what could not be written.
    with contextlib.suppress(OSError):
        handler.close()
    _set_levels()


def _set_levels() -> None:
    """Turn on what some handler wants, and nothing else: that is what makes the rest cheap."""
    named = {_ROOT} | {name for wish in _handlers.values() for name in wish.branches}
    for name in named | set(BRANCHES):
        wanted = [wish.level(name) for wish in _handlers.values()]
        logging.getLogger(name).setLevel(min(wanted, default=logging.WARNING))
