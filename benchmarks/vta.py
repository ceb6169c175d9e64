# SPDX-License-Identifier: Apache-2.0
"""Measures VTA's model: operators with loads before products and beside them, and the speed of the model.

Cycles are *modelled*. The bound is the busiest stage: no order of the same instructions could be faster. Each operator
has the tiles with the least estimated time. For ResNet-8 as a network on CPU and VTA, the outputs are compared with
TFLite Micro's, and the instructions of the emulated PYNQ-Z1's CPU alone are listed, too.

Run: ``UTVM_MODEL_CACHE=DIR .venv/bin/python benchmarks/vta.py``; DIR has the networks of ``networks.py``. Ends with 1
if GEMM takes more than 1.3 times its bound, or the model multiplies less than 50 million times a second.
"""

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from rich.console import Console
from rich.table import Table

import utvm
from benchmarks import seen
from benchmarks.int8 import check, random_inputs
from benchmarks.networks import networks
from models.tflite_reference import tflite_micro
from utvm import boards, vta
from utvm.boards.accelerators import accelerator_of
from utvm.compiler import CompileOptions, from_tflite
from utvm.compiler.targets.vta.operators import Conv2d, Elementwise, Matmul, Requantise
from utvm.firmware import compile_for
from utvm.virtual.vta.simulator import STAGES

_BY = Requantise(8)
_SAMPLES = 20
_CPU = "pynq-z1:memory=ddr,driver=qemu"
_MOST_OVER_BOUND = 1.3
_LEAST_SPEED = 50e6
# ResNet-8 for CIFAR-10: channels, height and width, outputs, kernel, stride, and the number of such layers.
_RESNET8 = (
    (3, 32, 16, 3, 1, 1),
    (16, 32, 16, 3, 1, 2),
    (16, 32, 32, 3, 2, 1),
    (32, 16, 32, 3, 1, 1),
    (16, 32, 32, 1, 2, 1),
    (32, 16, 64, 3, 2, 1),
    (64, 8, 64, 3, 1, 1),
    (32, 16, 64, 1, 2, 1),
)


def convolution(channels: int, size: int, outputs: int, kernel: int, stride: int, overlapped: bool) -> Conv2d:
    """Return a convolution whose output is as large as its input, or a stride smaller."""
    missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    pads = (missing // 2, missing - missing // 2) * 2
    shape = (1, channels, size, size)
    return Conv2d(shape, outputs, (kernel, kernel), stride, pads, _BY, overlapped=overlapped)


def run(env: vta.Env, operator: Any) -> tuple[Mapping[str, int], float]:
    """Run an operator on zeros. Returns its counts, and the seconds of the fastest of three runs."""
    scheduled = operator.schedule(env)
    module, model, device = vta.build(scheduled, env), vta.simulator(env), tvm.runtime.device("ext_dev", 0)
    (function,) = scheduled.mod.functions.values()
    shapes = [([int(extent) for extent in tensor.shape], str(tensor.dtype)) for tensor in function.params]
    tensors = [tvm.runtime.tensor(np.zeros(shape, kind), device) for shape, kind in shapes]
    seconds = []
    for _ in range(3):
        model.clear()
        begin = time.perf_counter()
        module[str(function.attrs["global_symbol"])](*tensors)
        seconds.append(time.perf_counter() - begin)
    return model.statistics(), min(seconds)


def measure(env: vta.Env, pairs: list[tuple[Any, Any, int]]) -> dict[str, int]:
    """Return the sums over operators, each with loads before products, with loads beside them, and its number."""
    total = dict.fromkeys(("instructions", "bytes", "serial", "overlapped", "bound"), 0)
    for serial, overlapped, number in pairs:
        counts, _ = run(env, overlapped)
        total["instructions"] += number * counts["instructions"]
        total["bytes"] += number * counts["dram_nbytes"]
        total["serial"] += number * run(env, serial)[0]["modelled_cycles"]
        total["overlapped"] += number * counts["modelled_cycles"]
        total["bound"] += number * max(counts[f"modelled_{stage}_cycles"] for stage in STAGES)
    return total


def network() -> dict[str, int]:
    """Measure ResNet-8 with all convolutions on VTA, and on a CPU alone; SystemExit if outputs differ."""
    (content,) = [network.content for network in networks() if network.name == "resnet8"]
    model, host = from_tflite(content, "resnet8"), boards.load("host")
    divided = compile_for(host, model, CompileOptions(accelerator="all"))
    model_steps = accelerator_of(host).model_steps
    assert model_steps is not None
    steps = model_steps(divided)
    samples = random_inputs(divided, _SAMPLES)
    with utvm.open("host") as board:
        loaded = board.load(divided)
        outputs = [list(loaded.run(*sample).outputs) for sample in samples]
    check("resnet8", "CPU and VTA", outputs, tflite_micro(content, samples))
    with utvm.open(_CPU, kind="virtual") as board:
        cpu_count = (
            board.load(compile_for(boards.load(_CPU), model, CompileOptions(accelerator="off"))).run(*samples[0]).count
        )
    return {
        "samples": _SAMPLES,
        "on_vta": sum(step["instructions"] > 0 for step in steps),
        "modelled_cycles": sum(step["modelled_cycles"] for step in steps),
        "bytes": sum(step["dram_nbytes"] for step in steps),
        "cpu_instructions": cpu_count,
    }


def main() -> int:
    """Measure, print and store the figures."""
    env = vta.get_env()
    add = Elementwise(1024)
    tile = (16, 16, 4)
    products = [Matmul(16, 1024, 1024, _BY, overlapped=overlapped, tile=tile) for overlapped in (False, True)]
    layers = [(*(convolution(*row[:5], overlapped) for overlapped in (False, True)), row[5]) for row in _RESNET8]
    operators = {
        "vector add, 1,024": measure(env, [(add, add, 1)]),
        "GEMM, 16 x 1024 x 1024": measure(env, [(*products, 1)]),
        "convolutions of ResNet-8": measure(env, layers),
        "3 x 3 of ResNet-18, 64 channels of 56 x 56": measure(
            env, [(convolution(64, 56, 64, 3, 1, False), convolution(64, 56, 64, 3, 1, True), 1)]
        ),
    }
    resnet8 = network()
    speed = 16 * 1024 * 1024 / run(env, products[1])[1]
    table = Table("operator", "instructions", "bytes", "one after the other", "beside", "bound", box=None)
    for name, row in operators.items():
        table.add_row(name, *(f"{value:,}" for value in row.values()))
    console = Console(width=140)
    console.print(table)
    console.print(
        f"ResNet-8: {resnet8['on_vta']} layers on VTA, {resnet8['modelled_cycles']:,} modelled cycles, "
        f"{resnet8['bytes']:,} bytes; the CPU alone takes {resnet8['cpu_instructions']:,} instructions"
    )
    console.print(f"cycles are modelled; the model multiplies {speed / 1e6:.0f} million times a second")
    gemm = operators["GEMM, 16 x 1024 x 1024"]
    over = gemm["overlapped"] / gemm["bound"]
    seen.keep(
        "vta",
        {"operators": operators, "resnet8": resnet8, "over_bound": round(over, 2), "million_macs": round(speed / 1e6)},
    )
    seen.write_page()
    return 0 if over <= _MOST_OVER_BOUND and speed >= _LEAST_SPEED else 1


if __name__ == "__main__":
    sys.exit(main())
