# SPDX-License-Identifier: Apache-2.0
"""Int8 networks: instructions, flash and working memory; each run is also compared bit for bit with TFLite Micro.

    UTVM_MODEL_CACHE=FOLDER .venv/bin/python benchmarks/int8.py [--samples N]

Instructions are counted in one run on the emulated MPS2 AN500 (QEMU) and on the virtual STM32F746; they are not time.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import seen, yardstick
from benchmarks.networks import Network, networks
from models.tflite_reference import Arrays, tflite_micro
from utvm import boards, compiler, firmware
from utvm.boards import Board
from utvm.compiler import Library, Model
from utvm.compiler.memory.regions import Memory
from utvm.compiler.names import library_name
from utvm.drivers import attach
from utvm.session import HostDriven


def main() -> None:
    """Measure the networks and print a table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--samples", type=int, default=20, help="random inputs for each network (default: 20)")
    arguments = options.parse_args()
    board = boards.load("stm32f746")
    figures = [measure(board, network, arguments.samples) for network in networks()]
    print_table(board, figures)
    seen.keep("int8", figures)


def measure(board: Board, network: Network, count: int) -> dict[str, Any]:
    """Compile one network, run it on both boards, compare every output, and return the figures.

    Raises:
        SystemExit: a bit of an output differs from TFLite Micro's.
    """
    model = compiler.from_tflite(network.content, network.name)
    library, seconds = compile_anew(model, board)
    samples = random_inputs(library, count)
    expected = tflite_micro(network.content, samples)
    emulated = yardstick.run(library, samples)
    check(network.name, "MPS2 AN500", [run.outputs for run in emulated.runs], expected)
    image = firmware.build(board, [library])
    with (
        tempfile.TemporaryDirectory() as logs,
        attach(board, "virtual", log_directory=Path(logs)) as connection,
        HostDriven(connection, image) as session,
    ):
        virtual = [session.run(library.name, sample) for sample in samples]
    check(network.name, f"virtual {board.name}", [list(run.outputs) for run in virtual], expected)
    macs = sum(call.macs for call in library.calls)
    instructions = max(run.instructions for run in emulated.runs)
    tool, usual_instructions, usual_arena = network.usual
    return {
        "model": network.name,
        "macs": macs,
        "mps2_an500_instructions": instructions,
        f"virtual_{board.name}_instructions": max(run.count for run in virtual),
        "instructions_per_mac": round(instructions / macs, 3),
        "most_instructions": network.most_instructions,
        "arena_bytes": library.arena_bytes,
        "arena_lower_bound_bytes": library.lower_bound_bytes,
        "most_arena_bytes": network.most_arena,
        "flash_bytes": image.flash_bytes,
        "constants_bytes": library.weights_bytes,
        "code_bytes": image.flash_bytes - library.weights_bytes,
        "compile_seconds": round(seconds, 1),
        "bit_exact_samples": len(samples),
        "usual": {"with": tool, "instructions": usual_instructions, "arena_bytes": usual_arena},
    }


def compile_anew(model: Model, board: Board) -> tuple[Library, float]:
    """Compile without the cache; return the library and the seconds that it took."""
    from utvm.compiler.build import build_library  # as compile_model does on a miss

    start = time.monotonic()
    library = build_library(model, library_name(model.name), board.target, Memory())
    return library, time.monotonic() - start


def random_inputs(library: Library, count: int) -> list[Arrays]:
    """Return seeded inputs over the whole range of int8."""
    generator = np.random.default_rng(0)
    return [
        [generator.integers(-128, 128, tensor.shape).astype(tensor.dtype) for tensor in library.inputs]
        for _ in range(count)
    ]


def check(name: str, board: str, outputs: Sequence[Arrays], expected: Sequence[Arrays]) -> None:
    """Compare outputs bit for bit."""
    for number, (actual, reference) in enumerate(zip(outputs, expected, strict=True)):
        if [array.tobytes() for array in actual] != [array.tobytes() for array in reference]:
            raise SystemExit(f"{name}, sample {number} on {board}: {actual} where TFLite Micro has {reference}")


def print_table(board: Board, figures: Sequence[dict[str, Any]]) -> None:
    """Print the figures beside those of the usual kernels."""
    table = Table(title="int8 networks, gcc -O2, Cortex-M7 (instructions, not time)")
    columns = ("model", "MPS2 AN500", f"VIRTUAL {board.name}", "per MAC", "arena B", "bound B", "code B")
    for column in (*columns, "constants B", "compile s", "used today"):
        table.add_column(column, justify="left" if column in ("model", "used today") else "right")
    for row in figures:
        usual = row["usual"]
        table.add_row(
            row["model"],
            f"{row['mps2_an500_instructions']:,}",
            f"{row[f'virtual_{board.name}_instructions']:,}",
            f"{row['instructions_per_mac']:.2f}",
            f"{row['arena_bytes']:,}",
            f"{row['arena_lower_bound_bytes']:,}",
            f"{row['code_bytes']:,}",
            f"{row['constants_bytes']:,}",
            f"{row['compile_seconds']:.1f}",
            f"{usual['with']}: {usual['instructions']:,} and {usual['arena_bytes']:,} B (counted once, elsewhere)",
        )
    Console(width=180).print(table)
    samples = min(row["bit_exact_samples"] for row in figures)
    print(f"both places: every output of {samples} random inputs equals TFLite Micro's, bit for bit")


if __name__ == "__main__":
    main()
