# SPDX-License-Identifier: Apache-2.0
"""Images of other projects, in the folder UTVM_OUTSIDE, run unchanged on virtual boards (docs/outside.md).

A row of ``images.txt`` is a board, a file, and steps separated by ``|``: text to expect on the console, or

    @toggles PIN          two edges of a pin or a timer's channel
    @high PIN             a rising edge, after which the level stays
    @press PIN, @hold PIN, @square PIN    one press of a button; without a release; four periods of a signal
    @reply MASTER SYMBOL  the device behind a master sends the bytes of a variable
    @changes ADDRESS      a register has several values
    @type TEXT            on the console
    @value SYMBOL [NUMBER]     a variable is not zero, or has a value
    @excluded WHY         it waits for a partner that is missing
    @fails WHY            it does not reach its line

UTVM_OUTSIDE may have an ``images.txt`` of its own. Results are appended to ``results.txt`` there.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from utvm import boards
from utvm.drivers import Connection, attach
from utvm.session.application import read_image

pytestmark = pytest.mark.nightly
FOLDER = Path(os.environ.get("UTVM_OUTSIDE", "/nowhere"))
LIST = next(path for path in (FOLDER / "images.txt", Path(__file__).with_name("images.txt")) if path.is_file())
ROWS = [line.strip().split(maxsplit=2) for line in LIST.read_text().splitlines() if line and line[0] != "#"]
NOT_RUN = ("@excluded", "@fails")
PRESENT = [row for row in ROWS if (FOLDER / row[1]).is_file() and not row[2].startswith(NOT_RUN)]
SECONDS = 300.0  # for a step
PAUSE = 0.3


def _wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _do(board: Connection, symbols: dict[str, int], step: str, received: bytearray) -> None:
    action, _, rest = step.partition(" ")
    name, _, number = rest.partition(" ")
    pin = board.pin(name) if action in ("@toggles", "@high", "@press", "@square") else None

    def listen() -> bool:
        assert board.console
        received.extend(board.console.read(0.1))
        return step.encode() in received

    def has_value() -> bool:
        value = int.from_bytes(board.read_memory(symbols[name] & ~3, 4), "little") >> 8 * (symbols[name] & 3)
        return value & 0xFFFF == int(number, 0) if number else value != 0

    if action == "@reply":
        address = symbols[number]
        board.pin(name).reply(board.read_memory(address & ~3, 256)[address & 3 :])
    elif action == "@changes":
        values: set[bytes] = set()
        _wait(lambda: values.add(board.read_memory(int(name, 0), 4)) or len(values) > 2)
    elif action == "@hold":
        board.pin(name).drive(True)
    elif action == "@type":
        assert board.console
        time.sleep(1)
        board.console.write(rest.encode().decode("unicode_escape").encode())
    elif action == "@value":
        _wait(has_value)
    elif pin is None:
        _wait(listen)
    elif action == "@toggles":
        _wait(lambda: len(pin.edges()) > 1)
    elif action == "@high":
        _wait(lambda: pin.level and pin.edges())
    else:
        time.sleep(1)
        for _ in range(1 if action == "@press" else 4):
            for level in (True, False):
                pin.drive(level)
                time.sleep(PAUSE)


@pytest.mark.skipif(not PRESENT, reason="UTVM_OUTSIDE names no folder with images")
@pytest.mark.parametrize(("name", "file", "steps"), PRESENT, ids=[row[1] for row in PRESENT])
def test_image_reaches_its_line(tmp_path: Path, name: str, file: str, steps: str) -> None:
    parts = [step.strip() for step in steps.split(" | ")]
    description = boards.load(name)
    result = "did not reach its line"
    try:
        with attach(description, "virtual", log_directory=tmp_path) as board:
            image = read_image(description, FOLDER / file)
            board.program(image)
            for step in parts:  # watch from the first instruction on
                if step.startswith(("@toggles", "@high")):
                    board.pin(step.split()[1])
            board.reset(halt=False)
            received = bytearray()
            for step in parts:
                _do(board, dict(image.symbols), step, received)
        result = "reached its line"
    finally:
        with (FOLDER / "results.txt").open("a") as results:
            results.write(f"{name} {file} {result}\n")
