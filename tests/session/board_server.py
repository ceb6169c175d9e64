# SPDX-License-Identifier: Apache-2.0
"""A board that ``./inv board.serve`` serves over TCP."""

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from utvm.paths import ROOT

MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"
# Seconds until a board is served, with the model's compilation.
_START = 240.0


class BoardServer:
    """A running ``board.serve``."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log
        deadline = time.monotonic() + _START
        while not (match := re.search(r"serving on ([\d.]+):(\d+), (?:key (\w+)|any client);", self.output())):
            assert process.poll() is None and time.monotonic() < deadline, self.output()
            time.sleep(0.1)
        self.address, self.port, self.key = match[1], int(match[2]), match[3] or ""

    def output(self) -> str:
        return self.log.read_text()


@contextlib.contextmanager
def serve_board(folder: Path, *options: str) -> Iterator[BoardServer]:
    """Serve a board for the length of a ``with`` block; yield the server when it is ready."""
    log = folder / "serve.log"
    command = [ROOT / "inv", "board.serve", "--port", "0", "--model", MODEL, *options]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output, text=True) as process:
        try:
            yield BoardServer(process, log)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
