# SPDX-License-Identifier: Apache-2.0
"""The log: standard ``logging``, one tree of loggers below ``utvm``, a branch per topic.

A branch without handlers is off, and its messages are not formatted. A record is one line; unprintable characters,
often from boards and programs, are escaped.
"""

import contextlib
import fcntl
import json
import logging
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Literal, TextIO

from utvm.base.storage.files import create_own_folder, open_regular
from utvm.base.text.quoting import printable
from utvm.errors import ConfigError

BRANCHES: Mapping[str, str] = json.loads(Path(__file__).with_name("branches.json").read_text(encoding="utf-8"))
"""Branches and their messages."""

VARIABLE = "UTVM_LOG"
FILE = "utvm.log"
LEVELS = "a level (debug, info, warning, error), or BRANCH=LEVEL,... for single branches"

_ROOT = "utvm"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FORM = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"
_MOST_SHOWN = 120  # Bytes of a packet that are shown: enough for its kind and address.


class Excerpt:
    """The first bytes of a packet and its length, formatted (and escaped) only if the record is written."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __str__(self) -> str:
        text = self._data[:_MOST_SHOWN].decode("latin-1")
        rest = len(self._data) - _MOST_SHOWN
        return f"{text} ... ({len(self._data)} bytes)" if rest > 0 else text


def _make_safe(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), None
    return True


for _name in BRANCHES:
    logging.getLogger(_name).addFilter(_make_safe)


class _Levels:
    def __init__(self, level: int, branches: Mapping[str, int]) -> None:
        self.by_branch = {_ROOT: level, **branches}

    def level(self, name: str) -> int:
        """Return the level of a logger's branch: the longest matching prefix."""
        while name not in self.by_branch:
            name = name.rpartition(".")[0]
        return self.by_branch[name]

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= self.level(record.name)


_handlers: dict[logging.Handler, _Levels] = {}
_begun = threading.Event()


def configure(levels: str, file: str) -> None:
    """Set up the log of this process, with a file unless ``file`` is empty; later calls only check ``levels``.

    Args:
        levels: as :data:`LEVELS`; if empty, those in ``UTVM_LOG``; if that is unset too, everything with a file,
            else warnings.
    """
    level_text = levels or os.environ.get(VARIABLE, "")
    request = _parse_levels(level_text, "--log-level" if levels else VARIABLE) if level_text else None
    if _begun.is_set():
        return
    warnings = _Levels(logging.WARNING, {})
    if file:
        _attach(_file_handler(Path(file), "w"), request or _Levels(logging.DEBUG, {}))
    # Warnings also appear on the terminal.
    _attach(logging.StreamHandler(_standard_error()), warnings if file else request or warnings)
    _begun.set()


@contextlib.contextmanager
def log_into(folder: Path) -> Iterator[None]:
    """Write all messages to ``utvm.log`` in a folder, for the length of a ``with`` block."""
    handler = _file_handler(folder / FILE, "a")
    _attach(handler, _Levels(logging.DEBUG, {}))
    try:
        yield
    finally:
        _detach(handler)


@contextlib.contextmanager
def capture(branch: str) -> Iterator[list[str]]:
    """Collect the messages of a branch, of all levels, in a ``with`` block."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    _attach(handler, _Levels(logging.CRITICAL, {branch: logging.DEBUG}))
    try:
        yield lines
    finally:
        _detach(handler)


class _File(logging.FileHandler):
    """A file handler that reports one write error and then stops, so that the run continues."""

    def _open(self) -> TextIOWrapper:
        # The file of --log-file may be a pipe; utvm.log in a run's folder must be a regular file.
        raw = open(self.baseFilename, f"{self.mode}b", opener=open_regular if self.mode == "a" else None)  # noqa: SIM115
        return TextIOWrapper(raw, encoding=self.encoding, errors=self.errors)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        if self not in _handlers:
            return
        _detach(self)
        print(f"the log {self.baseFilename} ends here: {sys.exc_info()[1]}", file=sys.stderr)


def _file_handler(path: Path, mode: Literal["a", "w"]) -> logging.Handler:
    with ConfigError.on_os_error(f"{path}: the log cannot be written", "choose another file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        return _File(path, mode, encoding="utf-8", errors="backslashreplace")


def _standard_error() -> TextIO:
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", buffering=1, errors="backslashreplace")
    except OSError:  # A replaced stream may have no file descriptor.
        return sys.stderr


def _parse_levels(text: str, option: str) -> _Levels:
    everywhere, branches = logging.WARNING, {}
    for word in text.split(","):
        name, equals, level = word.strip().rpartition("=")
        if level.lower() not in _LEVELS:
            raise ConfigError(f"{option}: {level!r} is not a level", f"use {', '.join(_LEVELS)}")
        branch = name if name == _ROOT or name.startswith(f"{_ROOT}.") else f"{_ROOT}.{name}"
        if not equals or branch == _ROOT:
            everywhere = _LEVELS[level.lower()]
        elif any(known == branch or known.startswith(f"{branch}.") for known in BRANCHES):
            branches[branch] = _LEVELS[level.lower()]
        else:
            raise ConfigError(f"{option}: there is no branch {name!r}", f"there are: {', '.join(BRANCHES)}")
    return _Levels(everywhere, branches)


def _attach(handler: logging.Handler, request: _Levels) -> None:
    handler.setFormatter(logging.Formatter(_FORM, "%Y-%m-%d %H:%M:%S"))
    handler.addFilter(request.filter)
    _handlers[handler] = request
    root = logging.getLogger(_ROOT)
    root.addHandler(handler)
    # Keep our messages out of the log of a program that embeds us.
    root.propagate = False
    _set_levels()
    words = f"this is process {os.getpid()}: {shlex.join(sys.argv)}"
    handler.handle(logging.LogRecord("utvm.process", logging.INFO, __file__, 0, printable(words), None, None))


def _detach(handler: logging.Handler) -> None:
    logging.getLogger(_ROOT).removeHandler(handler)
    _handlers.pop(handler, None)
    # Closing flushes the rest, which may fail again.
    with contextlib.suppress(OSError):
        handler.close()
    _set_levels()


def _set_levels() -> None:
    """Enable only the levels that some handler writes, so that other messages cost nothing."""
    branches = {_ROOT} | {name for request in _handlers.values() for name in request.by_branch}
    for name in branches | set(BRANCHES):
        levels = [request.level(name) for request in _handlers.values()]
        logging.getLogger(name).setLevel(min(levels, default=logging.WARNING))


KEEP_VARIABLE = "UTVM_KEEP_LOGS"
_MOST_LOGS = 50
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def log_folder(folder: Path) -> Path:
    """Create a folder for logs, and remove its oldest neighbours beyond the last 50, or ``UTVM_KEEP_LOGS``."""
    text = os.environ.get(KEEP_VARIABLE, "")
    if text and not text.isdecimal():
        raise ConfigError(f"{KEEP_VARIABLE}={text}: is not a number", "set it to the number of logs to keep")
    with ConfigError.on_os_error(
        f"{folder}: logs cannot be written there",
        "make it writable, or free some space; outside a checkout, XDG_STATE_HOME sets another folder",
    ):
        create_own_folder(folder)
        # Left open: the kernel releases the lock when this process ends.
        fcntl.flock(os.open(folder, _FOLDER), fcntl.LOCK_SH)
    others = [path for path in folder.parent.iterdir() if path != folder and path.is_dir() and not path.is_symlink()]
    for path in sorted(others, key=_modification_time, reverse=True)[max(0, int(text or _MOST_LOGS) - 1) :]:
        _remove_if_unused(path)
    return folder


def _modification_time(folder: Path) -> float:
    with contextlib.suppress(OSError):
        return folder.stat().st_mtime
    return 0.0


def _remove_if_unused(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, _FOLDER)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)
