# SPDX-License-Identifier: Apache-2.0
"""VTA's model: what operators take on it, with loads before products and beside them, and how fast the model is.

Cycles are *modelled*. The bound is the busiest stage: no order of the same instructions could be faster.
Each operator's tiles are those that are estimated to take the least time.

Run: ``.venv/bin/python benchmarks/vta.py``. Ends with 1 if GEMM takes more than 1.3 times its bound, or the model
multiplies less than 50 million times a second.
"""

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from rich.console import Console
from rich.table import Table

from benchmarks import seen
from utvm import vta
from utvm.compiler.targets.vta.operators import Convolution, Elementwise, Matmul, Requantise
from utvm.virtual.vta.simulator import STAGES

_BY = Requantise(8)
_MOST_OVER_BOUND = 1.3
_LEAST_SPEED = 50e6
# Channels, height and width, outputs, kernel, stride: what ResNet-8 for CIFAR-10 has, and how often.
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


def convolution(channels: int, size: int, outputs: int, kernel: int, stride: int, overlapped: bool) -> Convolution:
    """Return a convolution whose output is as large as its input, or a stride smaller."""
    missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    pads = (missing // 2, missing - missing // 2) * 2
    shape = (1, channels, size, size)
    return Convolution(shape, outputs, (kernel, kernel), stride, pads, _BY, overlapped=overlapped)


def run(env: vta.Env, operator: Any) -> tuple[Mapping[str, int], float]:
    """Run an operator on zeros; returns what was counted, and the seconds of the fastest of three runs."""
    scheduled = operator.schedule(env)
    module, model, device = vta.build(scheduled, env), vta.simulator(env), tvm.runtime.device("ext_dev", 0)
    (function,) = scheduled.mod.functions.values()
    shapes = [([int(extent) for extent in each.shape], str(each.dtype)) for each in function.params]
    tensors = [tvm.runtime.tensor(np.zeros(shape, kind), device) for shape, kind in shapes]
    taken = []
    for _ in range(3):
        model.clear()
        begin = time.perf_counter()
        module[str(function.attrs["global_symbol"])](*tensors)
        taken.append(time.perf_counter() - begin)
    return model.statistics(), min(taken)


def measured(env: vta.Env, pairs: list[tuple[Any, Any, int]]) -> dict[str, int]:
    """Return the sums over operators, each given as it loads before products, and beside them, and how often."""
    total = dict.fromkeys(("instructions", "bytes", "serial", "overlapped", "bound"), 0)
    for serial, overlapped, times in pairs:
        counted, _ = run(env, overlapped)
        total["instructions"] += times * counted["instructions"]
        total["bytes"] += times * counted["dram_nbytes"]
        total["serial"] += times * run(env, serial)[0]["modelled_cycles"]
        total["overlapped"] += times * counted["modelled_cycles"]
        total["bound"] += times * max(counted[f"modelled_{stage}_cycles"] for stage in STAGES)
    return total


def main() -> int:
    """Measure, print and keep."""
    env = vta.get_env()
    add = Elementwise(1024)
    tile = (16, 16, 4)
    products = [Matmul(16, 1024, 1024, _BY, overlapped=each, tile=tile) for each in (False, True)]
    layers = [(*(convolution(*row[:5], each) for each in (False, True)), row[5]) for row in _RESNET8]
    found = {
        "vector add, 1,024": measured(env, [(add, add, 1)]),
        "GEMM, 16 x 1024 x 1024": measured(env, [(*products, 1)]),
        "convolutions of ResNet-8": measured(env, layers),
        "3 x 3 of ResNet-18, 64 channels of 56 x 56": measured(
            env, [(convolution(64, 56, 64, 3, 1, False), convolution(64, 56, 64, 3, 1, True), 1)]
        ),
    }
    speed = 16 * 1024 * 1024 / run(env, products[1])[1]
    table = Table("operator", "instructions", "bytes", "one after the other", "beside", "bound", box=None)
    for name, row in found.items():
        table.add_row(name, *(f"{value:,}" for value in row.values()))
    console = Console(width=140)
    console.print(table)
    console.print(f"cycles are modelled; the model multiplies {speed / 1e6:.0f} million times a second")
    gemm = found["GEMM, 16 x 1024 x 1024"]
    over = gemm["overlapped"] / gemm["bound"]
    seen.keep("vta", {"operators": found, "over_bound": round(over, 2), "million_macs": round(speed / 1e6)})
    seen.write_page()
    return 0 if over <= _MOST_OVER_BOUND and speed >= _LEAST_SPEED else 1


if __name__ == "__main__":
    sys.exit(main())
