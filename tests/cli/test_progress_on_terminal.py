# SPDX-License-Identifier: Apache-2.0
"""Progress of commands on a real terminal: a line of its own, cut to the width, with its count and the time left."""

import os
import pty
import re
import signal
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.signals import reset_signals
from utvm.paths import ROOT

_DIGITS = ROOT / "models" / "digits"


@contextmanager
def _terminal(columns: int, *words: object, **variables: str) -> Iterator[Iterator[str]]:
    """Run a command on a terminal; yield the changes of its screen, until it is ended at the end of the block."""
    pid, terminal = pty.fork()
    if pid == 0:
        ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm", **variables}
        environment.pop("COLUMNS", None)
        reset_signals()
        os.execve(ROOT / "inv", ["inv", *map(str, words)], environment)

    def changes() -> Iterator[str]:
        while True:
            try:
                yield os.read(terminal, 1 << 16).decode(errors="replace")
            except OSError:
                return

    try:
        yield changes()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _rows(text: str) -> list[str]:
    """The rows that were on the screen, one after the other."""
    return [row for row in re.split(r"[\r\n]+|\x1b\[2K", text) if re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", row).strip()]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40])
def test_printed_samples_and_progress_have_lines_of_their_own(columns: int) -> None:
    words = ("model.eval", _DIGITS / "digits_int8.tflite", "--board", "mps2-an385", "--samples", "20000")
    text = ""
    with _terminal(columns, *words) as changes:
        for change in changes:
            text += change
            if len(re.findall(r"about \d+ (?:s|min) left", text)) > 2:
                break
    progress = [row for row in _rows(text) if re.search(r"\d+ of 20000: \d+ s, about \d+ (?:s|min) left", row)]
    assert progress
    for row in progress:
        plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", row)
        assert plain.endswith(" left") and len(plain) <= columns, plain


@pytest.mark.nightly
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_boards_are_counted(columns: int, tmp_path: Path) -> None:
    words = ("board.list", "--fits", _DIGITS / "digits.onnx")
    text = ""
    with _terminal(columns, *words, XDG_CACHE_HOME=str(tmp_path)) as changes:
        for change in changes:
            text += change
            if re.search(r"stm32vldiscovery|left.*left", text, re.DOTALL):
                break
    assert re.search(r"\d+ of 17: \d+ s, about \d+ (s|min) left", text), text
