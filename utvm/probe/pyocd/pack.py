# SPDX-License-Identifier: Apache-2.0
"""A CMSIS pack for a chip that pyOCD does not know: its memory map, and a flash algorithm of the runtime's.

Source: Open-CMSIS-Pack, "Package description (*.pdsc)" and "Flash programming".
"""

import itertools
import zipfile
from pathlib import Path

from utvm import runtime
from utvm.base.text.quoting import c_string
from utvm.base.text.templates import templates_of
from utvm.boards import Board
from utvm.boards.loader import Algorithm, algorithm_of
from utvm.boards.parts import PyOcdPart

_ALGORITHM = "algorithm.FLM"
_PAGE = 4096  # bytes: as much as is programmed in one call


def pack_for(board: Board, part: PyOcdPart, folder: Path) -> Path | None:
    """Return the pack that pyOCD is given for a board: the one in its folder, or one that is made; None without.

    Args:
        folder: where it is made.
    """
    algorithm = algorithm_of(board)
    if algorithm is None:
        return board.directory / part.pack if part.pack else None
    made = folder / f"{board.name}.pack"
    _compile(board, algorithm, folder / _ALGORITHM)
    description = templates_of(__package__, html=True).get_template("chip.pdsc.j2")
    text = description.render(
        board=board,
        core=board.cpu_row.core.title(),
        target=part.target,
        flash=algorithm.region,
        ram=board.region(board.layout.data),
        algorithm=_ALGORITHM,
    )
    with zipfile.ZipFile(made, "w") as pack:
        pack.writestr(f"utvm.{board.name}.pdsc", text)
        pack.write(folder / _ALGORITHM, _ALGORITHM)
    return made


def _compile(board: Board, algorithm: Algorithm, output: Path) -> None:
    flash, common = algorithm.region, runtime.DIRECTORY / board.architecture / "flash" / "common"
    kinds = [(size, len(list(same))) for size, same in itertools.groupby(flash.sectors)]
    starts = itertools.accumulate((size * count for size, count in kinds), initial=0)
    sectors = [f"{{{size}u, {start}u}}" for (size, _), start in zip(kinds, starts, strict=False)]
    with board.compiler.compiled(
        output.parent,
        (algorithm.source, common / "descriptor.c"),
        cpu=board.cpu,
        include=(common, *runtime.include(board.architecture, "host_driven")),
        defines=(
            *algorithm.numbers.defines,
            f"UTVM_FLASH_NAME={c_string(board.name)}",
            f"UTVM_FLASH_START={flash.address:#x}u",
            f"UTVM_FLASH_BYTES={flash.size:#x}u",
            f"UTVM_FLASH_PAGE={_PAGE}u",
            f"UTVM_FLASH_KINDS={len(kinds)}u",
            f"UTVM_FLASH_SECTORS={', '.join(sectors)}",
        ),
    ) as objects:
        objects.link(output, linker_script=common / "algorithm.ld")
