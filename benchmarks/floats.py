# SPDX-License-Identifier: Apache-2.0
"""A float32 network on every core: instructions; each run is also compared with sums in the model's order.

    .venv/bin/python benchmarks/floats.py [--core NAME]...

The network has the layers of the CIFAR-10 CNN of the microTVM blog post of 2020, 12,298,240 multiply-accumulates, and
random weights. Instructions are counted by the emulated board; they are not time.
"""

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks import seen
from benchmarks.cores import CORES, Core
from benchmarks.int8 import compile_anew
from utvm import boards, compiler, firmware
from utvm.drivers import attach
from utvm.session import HostDriven

Array = npt.NDArray[np.float32]

USUAL = {"Cortex-M7": {"onnx2c, -O2": 197_000_000, "onnx2c, -O3": 80_000_000, "CMSIS-NN, its convolutions": 76_900_000}}
"""Instructions of other kernels, counted once with arm-none-eabi-gcc 12.2.1 under QEMU 7.2, and not again here."""

NAME = "cifar10_float"
_LAYERS = ((3, 32, "MaxPool"), (32, 32, "AveragePool"), (32, 64, "AveragePool"))
_CORES = ("Cortex-M7", "Cortex-M4", "Cortex-M33", "Cortex-M55", "Cortex-M3", "RV32IMAFC", "Cortex-A9")
_ROWS = {"Cortex-M4": "cortex-m4-fpv4-sp"}


def main() -> None:
    """Measure the network on the cores and print a table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--core", action="append", choices=_CORES, help="only this one")
    arguments = options.parse_args()
    figures = [measure(core) for core in CORES if core.name in (arguments.core or _CORES)]
    print_table(figures)
    if not arguments.core:
        seen.keep("floats", figures)


def parameters() -> dict[str, Array]:
    """Draw the weights, in ONNX's layout."""
    generator = np.random.default_rng(1)
    shapes: dict[str, tuple[int, ...]] = {}
    for number, (inputs, outputs, _) in enumerate(_LAYERS):
        shapes |= {f"w{number}": (outputs, inputs, 5, 5), f"b{number}": (outputs,)}
    shapes |= {"w3": (1024, 10), "b3": (10,)}
    return {name: (generator.standard_normal(shape) * 0.1).astype(np.float32) for name, shape in shapes.items()}


def network(weights: dict[str, Array]) -> bytes:
    """Write the network as ONNX: three convolutions of 5x5, each with a ReLU and a pool of 2x2; a product."""
    nodes, last = [], "x"
    for number, (_, _, pool) in enumerate(_LAYERS):
        inputs = [last, f"w{number}", f"b{number}"]
        nodes.append(helper.make_node("Conv", inputs, [f"c{number}"], pads=[2, 2, 2, 2]))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        last = f"p{number}"
        nodes.append(helper.make_node(pool, [f"r{number}"], [last], kernel_shape=[2, 2], strides=[2, 2]))
    nodes.append(helper.make_node("Flatten", [last], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", "w3", "b3"], ["y"]))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in _ENDS]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, NAME, values[:1], values[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


_ENDS = (("x", (1, 3, 32, 32)), ("y", (1, 10)))


def compute_expected(x: Array, weights: dict[str, Array]) -> Array:
    """Compute the network, each sum in the order of the model's axes, one product after the other."""
    for number, (inputs, outputs, pool) in enumerate(_LAYERS):
        size, kernel = x.shape[-1], weights[f"w{number}"]
        padded = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
        total = np.zeros((1, outputs, size, size), np.float32)
        for channel, row, column in itertools.product(range(inputs), range(5), range(5)):
            window = padded[:, channel, None, row : row + size, column : column + size]
            total += window * kernel[:, channel, row, column][:, None, None]
        total = np.maximum(total + weights[f"b{number}"][:, None, None], np.float32(0))
        corners = [total[..., row::2, column::2] for row, column in itertools.product(range(2), range(2))]
        x = np.maximum.reduce(corners) if pool == "MaxPool" else sum(corners[1:], corners[0]) / np.float32(4)
    flat, result = x.reshape(1, -1), np.zeros((1, 10), np.float32)
    for k in range(flat.shape[1]):
        result += flat[:, k : k + 1] * weights["w3"][k]
    return result + weights["b3"]


def measure(core: Core) -> dict[str, Any]:
    """Compile the network for a core, run it there, compare the output, and return the figures.

    Raises:
        SystemExit: a bit of the output differs.
    """
    board = boards.load(core.board)
    board = board.model_copy(update={"cpu": _ROWS.get(core.name, core.cpu) or board.cpu})
    weights = parameters()
    library, seconds = compile_anew(compiler.from_onnx(network(weights), NAME), board)
    image = firmware.build(board, [library])
    x = np.random.default_rng(5).standard_normal((1, 3, 32, 32), np.float32)
    with (
        tempfile.TemporaryDirectory() as logs,
        attach(board, "virtual", log_directory=Path(logs)) as connection,
        HostDriven(connection, image) as session,
    ):
        run = session.run(library.name, [x])
    if run.outputs[0].tobytes() != compute_expected(x, weights).tobytes():
        raise SystemExit(f"{core.name}: the output has other bits than the sums in the model's order")
    macs = sum(call.macs for call in library.calls)
    return {
        "core": core.name,
        "instructions": run.count,
        "macs": macs,
        "instructions_per_mac": round(run.count / macs, 3),
        "arena_bytes": library.arena_bytes,
        "code_bytes": image.flash_bytes - library.weights_bytes,
        "compile_seconds": round(seconds, 1),
        "usual": USUAL.get(core.name, {}),
    }


def print_table(figures: list[dict[str, Any]]) -> None:
    """Print the figures beside those of the usual kernels."""
    table = Table(title="a float32 network, gcc -O2 (instructions, not time)")
    for column in ("core", "instructions", "per MAC", "arena B", "code B", "used today"):
        table.add_column(column, justify="left" if column in ("core", "used today") else "right")
    for row in figures:
        table.add_row(
            row["core"],
            f"{row['instructions']:,}",
            f"{row['instructions_per_mac']:.2f}",
            f"{row['arena_bytes']:,}",
            f"{row['code_bytes']:,}",
            "; ".join(f"{name}: {count / 1e6:.1f} M" for name, count in row["usual"].items()),
        )
    Console(width=140).print(table)
    print("every output has the bits of sums in the model's order")


if __name__ == "__main__":
    main()
