# SPDX-License-Identifier: Apache-2.0
"""Instructions, code and RAM of one inference of the digits models, float and int8, on the virtual STM32F746.

Run: .venv/bin/python benchmarks/digits.py
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy.typing as npt

from benchmarks import seen
from models.digits import quantize
from models.digits.data import held_out
from utvm import boards, compiler, firmware
from utvm.boards import Board
from utvm.drivers import attach
from utvm.paths import ROOT
from utvm.session import HostDriven

# Convolutions of 16 and 32 filters on 8x8 and 4x4 positions, and the dense layer: multiply-accumulates.
_MACS = 8 * 8 * 16 * 9 + 4 * 4 * 32 * 16 * 9 + 128 * 10


def main() -> None:
    """Measure both models on the same images."""
    board = boards.load("stm32f746")
    images = held_out()[0][:10]
    floats = measure(board, ROOT / "models" / "digits" / "digits.onnx", images)
    integers = measure(board, quantize.MODEL, quantize.quantized_images(images))
    seen.keep("digits", {"float": floats, "int8": integers})


def measure(board: Board, model: Path, images: npt.NDArray[Any]) -> dict[str, int]:
    """Print and return exact counts. A second run with the same input shows that they repeat."""
    library = compiler.compile_model(compiler.load(model), target=board.target)
    image = firmware.build(board, [library])
    with (
        tempfile.TemporaryDirectory() as logs,
        attach(board, "virtual", log_directory=Path(logs)) as connection,
        HostDriven(connection, image) as session,
    ):
        counts = [session.run(library.name, [picture[None]]).count for picture in [*images, images[0]]]
    print(f"{library.name} on a VIRTUAL {board.name}, gcc -O2: {_MACS:,} multiply-accumulates")
    print(f"instructions  {counts[0]:,} ({len(images)} images: {min(counts):,} to {max(counts):,})")
    print(f"per MAC       {counts[0] / _MACS:.2f}")
    print(f"repeats       {'exactly' if counts[0] == counts[-1] else 'NOT'}: {counts[0]:,} and {counts[-1]:,}")
    for section in image.sections:
        print(f"{section.name:<13} {section.size:>7,} bytes in {image.region_of(section.address)}")
    print(f"flash {image.flash_bytes:,} bytes, of these weights {library.weights_bytes:,}")
    print(f"RAM {image.ram_bytes:,} bytes, of these arena {library.arena_bytes:,}")
    return {"instructions": counts[0], "flash_bytes": image.flash_bytes, "ram_bytes": image.ram_bytes}


if __name__ == "__main__":
    main()
