# SPDX-License-Identifier: Apache-2.0
"""Of how many described chips a folder is made that loads, builds, and is read by OpenOCD or left to pyOCD.

Run: ``.venv/bin/python benchmarks/boards_coverage.py [FILE...]``: over the targets built into pyOCD, which must be
on PATH, and over the packs and target files of probe-rs that are named. What is not made is counted by its reason;
one of four is built.
"""

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import track

from benchmarks import seen
from utvm import boards, firmware
from utvm.boards import described
from utvm.boards.described import pyocd
from utvm.compiler import Library, compile_model, load
from utvm.errors import UtvmError
from utvm.paths import ROOT

_MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"
_BUILT = 4  # one of so many is built
_SHELF = 300  # folders beside which board.list is measured


@dataclass
class Source:
    """What came of one source's chips."""

    described: int = 0
    made: int = 0
    tried_to_build: int = 0
    builds: int = 0
    openocd: int = 0
    by_pyocd: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, Any]:
        return vars(self) | {"refused": dict(self.refused.most_common())}


def main() -> int:
    """Measure, print and keep the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", type=Path)
    named = parser.parse_args().files
    with tempfile.TemporaryDirectory() as name:
        shelf = Path(name) / "shelf"
        shelf.mkdir()
        sources = {path.name: cover(path, shelf) for path in (described.PYOCD, *named)}
        seconds = listing(shelf)
    figures = {
        "sources": {name: source.figures() for name, source in sources.items()},
        "list_seconds": round(seconds, 2),
        "list_folders": _SHELF,
    }
    seen.keep("boards_coverage", figures)
    print(figures)
    return 0


def cover(path: Path, shelf: Path) -> Source:
    """Make a folder of each chip, and try it."""
    source = Source()
    library: dict[str, Library] = {}
    chips = pyocd.read_all() if path == described.PYOCD else described.read(path)
    for number, (name, make) in enumerate(track(chips.items(), path.name)):
        source.described += 1
        folder = shelf / f"{path.stem.lower()}-{number}"
        try:
            described.write(make(), folder, "cmsis-dap")
            board = boards.load(str(folder))
        except UtvmError as error:
            source.refused[reason(error.message, name)] += 1
            continue
        source.made += 1
        if board.by_openocd:
            source.openocd += parses(board.openocd_config)
        else:
            source.by_pyocd += 1
        if source.made % _BUILT != 1:
            continue
        source.tried_to_build += 1
        try:
            if board.cpu not in library:
                library[board.cpu] = compile_model(load(_MODEL), target=board.target)
            firmware.build(board, [library[board.cpu]])
            source.builds += 1
        except UtvmError as error:
            source.refused[f"made, but not built: {reason(error.message, name)}"] += 1
    return source


def reason(message: str, chip: str) -> str:
    """Return a refusal without what is only this chip's."""
    return re.sub(r"0x[0-9a-f]+|\d+", "N", message.rpartition(": ")[2]).replace(chip, "it")


def parses(script: Path) -> bool:
    """Whether the real OpenOCD reads a script, which ends before it looks for a probe."""
    words = ["openocd", "-f", str(script), "-c", "shutdown"]
    return subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 0


def listing(shelf: Path) -> float:
    """Return the seconds of processors that a listing takes, the best of three, with so many folders."""
    made = sorted(shelf.iterdir())
    text = [(folder / "board.yaml").read_text() for folder in made]
    script = next(shelf.glob("*/openocd.cfg")).read_text()
    for number in range(_SHELF - len(made)):
        folder = shelf / f"again-{number}"
        folder.mkdir()
        again = re.sub(r"(?m)^name: .*", f"name: {folder.name}", text[number % len(text)])
        (folder / "board.yaml").write_text(again)
        (folder / "openocd.cfg").write_text(script)
    words = [str(ROOT / "inv"), "board.list", "--board-path", str(shelf)]
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(taken)


if __name__ == "__main__":
    sys.exit(main())
