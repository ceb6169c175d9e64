# SPDX-License-Identifier: Apache-2.0
"""What ``board.new`` does and prints."""

import re
import shlex
from pathlib import Path

from utvm.boards import described
from utvm.cli.output import OUT
from utvm.errors import ConfigError


def new_board(chip: str, source: str, registers: str, probe: str, output: str) -> None:
    """Make a board's folder from a description of its chip, load it, and say what is left to be looked up.

    Args:
        source: the file that describes the chip, or ``pyocd``.
        registers: the file of its registers (SVD), or nothing.
        probe: a kind of probe.
        output: the folder; by default called as the chip is, here.
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
    argument = shlex.quote(str(folder))
    OUT.print(f"try it: ./inv firmware.size --model models/digits/digits_int8.tflite --board {argument}")
    OUT.print(f"then plugged in, part by part: ./inv board.check --board {argument} --physical (docs/bring-up.md)")


def guesses_in(folder: Path) -> list[str]:
    """Return the lines of a board's file that say of themselves that they are to be looked up."""
    text = (folder / "board.yaml").read_text(encoding="utf-8")
    return [
        f"line {number}: {line.strip()}" for number, line in enumerate(text.splitlines(), 1) if "# check" in line
    ]
