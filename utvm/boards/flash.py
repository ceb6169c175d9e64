# SPDX-License-Identifier: Apache-2.0
"""What a board's file says of programming its flash, where what drives its probe knows nothing of that."""

from dataclasses import dataclass
from pathlib import Path

from utvm import runtime
from utvm.boards.board import Board
from utvm.boards.parts import MemoryRegion, Port
from utvm.errors import ConfigError


@dataclass(frozen=True)
class Algorithm:
    """How the flash is programmed.

    Attributes:
        source: its C file, of the board's folder or the runtime.
        numbers: what becomes macros in it.
        region: what it programs.
    """

    source: Path
    numbers: Port
    region: MemoryRegion


def algorithm_of(board: Board) -> Algorithm | None:
    """Return the algorithm that a board brings for pyOCD; None where it brings none."""
    part = board.physical.pyocd if board.physical else None
    if part is None or part.algorithm is None:
        return None
    file, architecture = board.directory / "board.yaml", board.architecture
    own = board.directory / f"{part.algorithm.name}.c"
    source = own if own.is_file() else runtime.shared(architecture, "flash", part.algorithm.name)
    if source is None:
        known = ", ".join(runtime.shared_names(architecture, "flash"))
        raise ConfigError(
            f"{file}: physical.pyocd.algorithm: there is none named {part.algorithm.name!r}",
            f"it is a C file in the board's folder, or one of {architecture}'s: {known or 'none'}",
        )
    regions = [each for each in board.memory if each.kind == "flash" and each.sectors and not each.alias_of]
    if len(regions) != 1:
        raise ConfigError(
            f"{file}: physical.pyocd.algorithm: it programs one region of kind flash with sectors; "
            f"there are {len(regions)}",
            "docs/porting.md, step 8",
        )
    return Algorithm(source, part.algorithm, regions[0])
