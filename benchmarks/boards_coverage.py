# SPDX-License-Identifier: Apache-2.0
"""Counts the described chips for which a folder can be generated that loads, builds, and fits OpenOCD or pyOCD.

Run: ``.venv/bin/python benchmarks/boards_coverage.py [FILE...]``, for the targets built into pyOCD, which must be on
PATH, and for the packs and target files of probe-rs that are named. Refused chips are counted by their reason; one of
four chips is built.
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
_BUILT = 4  # one of this many is built
_SHELF = 300  # folders beside which board.list is measured


@dataclass
class Source:
    """The counts for one source's chips."""

    described: int = 0
    written: int = 0
    tried_to_build: int = 0
    builds: int = 0
    openocd: int = 0
    by_pyocd: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, Any]:
        return vars(self) | {"refused": dict(self.refused.most_common())}


def main() -> int:
    """Measure, print and store the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", type=Path)
    named = parser.parse_args().files
    with tempfile.TemporaryDirectory() as name:
        shelf = Path(name) / "shelf"
        shelf.mkdir()
        sources = {path.name: examine(path, shelf) for path in (described.PYOCD, *named)}
        seconds = measure_listing(shelf)
    figures = {
        "sources": {name: source.figures() for name, source in sources.items()},
        "list_seconds": round(seconds, 2),
        "list_folders": _SHELF,
    }
    seen.keep("boards_coverage", figures)
    print(figures)
    return 0


def examine(path: Path, shelf: Path) -> Source:
    """Generate a folder for each chip, and examine it."""
    source = Source()
    library: dict[str, Library] = {}
    chips = pyocd.read_all() if path == described.PYOCD else described.read(path)
    for number, (name, describe) in enumerate(track(chips.items(), path.name)):
        source.described += 1
        folder = shelf / f"{path.stem.lower()}-{number}"
        try:
            described.write(describe(), folder, "cmsis-dap")
            board = boards.load(str(folder))
        except UtvmError as error:
            source.refused[reason(error.message, name)] += 1
            continue
        source.written += 1
        if board.by_openocd:
            source.openocd += parses(board.openocd_config)
        else:
            source.by_pyocd += 1
        if source.written % _BUILT != 1:
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
    """Return an error message without this chip's numbers and name."""
    return re.sub(r"0x[0-9a-f]+|\d+", "N", message.rpartition(": ")[2]).replace(chip, "it")


def parses(script: Path) -> bool:
    """Return whether OpenOCD reads a script, which ends before it looks for a probe."""
    command = ["openocd", "-f", str(script), "-c", "shutdown"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def measure_listing(shelf: Path) -> float:
    """Return the processor seconds of a listing of ``_SHELF`` folders: the best of three."""
    folders = sorted(shelf.iterdir())
    texts = [(folder / "board.yaml").read_text() for folder in folders]
    script = next(shelf.glob("*/openocd.cfg")).read_text()
    for number in range(_SHELF - len(folders)):
        folder = shelf / f"again-{number}"
        folder.mkdir()
        copy = re.sub(r"(?m)^name: .*", f"name: {folder.name}", texts[number % len(texts)])
        (folder / "board.yaml").write_text(copy)
        (folder / "openocd.cfg").write_text(script)
    command = [str(ROOT / "inv"), "board.list", "--board-path", str(shelf)]
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(seconds)


if __name__ == "__main__":
    sys.exit(main())
