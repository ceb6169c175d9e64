# SPDX-License-Identifier: Apache-2.0
"""``board.new``: a board's folder from the description of its chip."""

import re
from pathlib import Path

from utvm.boards import described
from utvm.cli.output import OUT
from utvm.errors import ConfigError


def new_board(chip: str, source: str, registers: str, probe: str, output: str) -> None:
    """Write a board's folder from a description of its chip, load it, and print the lines to check.

    Args:
        source: the file that describes the chip, or ``pyocd``.
        registers: the file of its registers (SVD), or nothing.
        output: the folder; by default with the chip's name.
    """
    if not source:
        raise ConfigError(
            "--from is missing",
            "a CMSIS pack (.pack, .pdsc), a target file of probe-rs (.yaml), or pyocd: what is built into it",
        )
    found = described.find(Path(source), chip)
    if registers:
        found = described.refine(found, Path(registers))
    folder = Path(output or re.sub(r"[^a-z0-9]+", "-", found.name.lower()).strip("-")).resolve()
    board = described.write(found, folder, probe)
    OUT.print(f"{folder}: {board.title}")
    for guess in guesses_in(folder):
        OUT.print(f"  {guess}")
    OUT.print(f"try it: ./inv firmware.size --model models/digits/digits_int8.tflite --board {folder}")
    OUT.print(f"then plugged in, part by part: ./inv board.check --board {folder} --physical (docs/bring-up.md)")


def guesses_in(folder: Path) -> list[str]:
    """Lines of a board's file that are marked as to be checked."""
    text = (folder / "board.yaml").read_text(encoding="utf-8")
    return [
        f"line {number}: {line.strip()}" for number, line in enumerate(text.splitlines(), 1) if "# check" in line
    ]
