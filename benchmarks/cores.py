# SPDX-License-Identifier: Apache-2.0
"""Int8 networks on every core: instructions; each run is also compared bit for bit with TFLite Micro.

    UTVM_MODEL_CACHE=FOLDER .venv/bin/python benchmarks/cores.py [--core NAME]... [--samples N]

A core is a row of ``CORES``. Instructions are counted by the emulated board; they are not time.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import seen
from benchmarks.int8 import check, compile_anew, random_inputs
from benchmarks.networks import Network, networks
from models.tflite_reference import tflite_micro
from utvm import boards, compiler, firmware
from utvm.drivers import attach
from utvm.session import HostDriven


@dataclass(frozen=True)
class Core:
    """A core, and the instructions of other projects' kernels on it.

    Attributes:
        board: the board on which it is emulated.
        cpu: its row of the toolchain's file, if the board has another core that also runs its code.
        usual: other kernels' instructions by network, counted once on the same board and not measured again.
        usual_name: the name of the other kernels.
    """

    name: str
    board: str
    usual: dict[str, int]
    usual_name: str = "CMSIS-NN (C)"
    cpu: str = ""


# The other counts: CMSIS-NN of 2026 inside TensorFlow Lite Micro, with arm-none-eabi-gcc 12.2.1 or
# riscv64-unknown-elf-gcc 12.2.0, -O2, under QEMU 7.2.
CORES = [
    Core("Cortex-M7", "mps2-an500", {"resnet8": 30_023_120, "vww": 24_025_498, "cifar10_cnn": 25_501_958}, "CMSIS-NN"),
    Core("Cortex-M4", "mps2-an500", {"resnet8": 27_490_000, "vww": 24_070_000}, "CMSIS-NN", cpu="cortex-m4"),
    Core("Cortex-M33", "mps2-an505", {}),
    Core("Cortex-M55", "mps3-an547", {"resnet8": 4_501_534, "vww": 6_539_833}, "CMSIS-NN (MVE)"),
    Core("Cortex-M3", "mps2-an385", {"resnet8": 39_400_000, "vww": 31_900_000}),
    Core("Cortex-M0", "mps2-an385", {"resnet8": 90_600_000, "vww": 86_700_000}, cpu="cortex-m0"),
    Core("Cortex-M23", "mps2-an505", {}, cpu="cortex-m23"),
    Core("RV32IMAFC", "riscv-spike:driver=qemu", {"resnet8": 63_200_000, "vww": 48_700_000}),
    Core("RV64IMAFDC", "riscv-spike:core=rv64,driver=qemu", {}),
    Core("Cortex-A9", "pynq-z1:memory=ddr,driver=qemu", {}),
]


def main() -> None:
    """Measure the networks on the cores and print a table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--samples", type=int, default=2, help="random inputs for each network (default: 2)")
    options.add_argument("--core", action="append", choices=[core.name for core in CORES], help="only this one")
    arguments = options.parse_args()
    int8_networks = networks()
    cores = [core for core in CORES if core.name in (arguments.core or [core.name])]
    figures = [measure(core, network, arguments.samples) for core in cores for network in int8_networks]
    print_table(figures)
    if not arguments.core:
        seen.keep("cores", figures)


def measure(core: Core, network: Network, count: int) -> dict[str, Any]:
    """Compile a network for a core, run it there, compare every output, and return the figures."""
    board = boards.load(core.board)
    board = board.model_copy(update={"cpu": core.cpu or board.cpu})
    library, _ = compile_anew(compiler.from_tflite(network.content, network.name), board)
    samples = random_inputs(library, count)
    image = firmware.build(board, [library])
    with (
        tempfile.TemporaryDirectory() as logs,
        attach(board, "virtual", log_directory=Path(logs)) as connection,
        HostDriven(connection, image) as session,
    ):
        runs = [session.run(library.name, sample) for sample in samples]
    check(network.name, core.name, [list(run.outputs) for run in runs], tflite_micro(network.content, samples))
    instructions = max(run.count for run in runs)
    usual = core.usual.get(network.name)
    return {
        "core": core.name,
        "model": network.name,
        "instructions": instructions,
        "instructions_per_mac": round(instructions / sum(call.macs for call in library.calls), 3),
        "arena_bytes": library.arena_bytes,
        "flash_bytes": image.flash_bytes,
        "constants_bytes": library.weights_bytes,
        "bit_exact_samples": count,
        "usual": {"with": core.usual_name, "instructions": usual},
        "ratio": round(instructions / usual, 3) if usual else None,
    }


def print_table(figures: list[dict[str, Any]]) -> None:
    """Print the figures beside those of the usual kernels."""
    table = Table(title="int8 networks, gcc -O2 (instructions, not time)")
    for column in ("core", "model", "instructions", "per MAC", "arena B", "constants B", "used today", "ours to it"):
        table.add_column(column, justify="left" if column in ("core", "model") else "right")
    for row in figures:
        usual = row["usual"]
        known = usual["instructions"] is not None
        table.add_row(
            row["core"],
            row["model"],
            f"{row['instructions']:,}",
            f"{row['instructions_per_mac']:.2f}",
            f"{row['arena_bytes']:,}",
            f"{row['constants_bytes']:,}",
            f"{usual['with']}: {usual['instructions']:,}" if known else "not counted",
            f"{row['ratio']:.2f}" if known else "",
        )
    Console(width=140).print(table)
    print("every output equals TFLite Micro's, bit for bit")


if __name__ == "__main__":
    main()
