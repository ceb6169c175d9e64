# SPDX-License-Identifier: Apache-2.0
"""What it takes to run a network of megabytes once on the board ``host``: with empty caches, and again.

The network has the layers of MobileNetV2 in int8, and random weights. Both runs are whole commands, from the shell
to the outputs. Seconds are those of all processors together: what else the machine does, does not count.

Run: ``.venv/bin/python benchmarks/compile.py``.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks import seen
from models.tflite_writer import Builder
from utvm.paths import ROOT

# Expansion, channels, repetitions and first stride of each group of blocks: table 2 of arXiv:1801.04381.
_GROUPS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_LAST, _CLASSES, _SIDE = 1280, 1000, 224


class _Network:
    """Writes layers one behind the other."""

    def __init__(self) -> None:
        self.builder = Builder()
        self._random = np.random.default_rng(1)
        self._count = 0

    def tensor(self, shape: tuple[int, ...], scale: float = 0.05, zero: int = 0) -> str:
        self._count += 1
        return self.builder.tensor(f"t{self._count}", shape, "int8", scale=scale, zero_point=zero)

    def _parameters(self, shape: tuple[int, ...], channels: int, axis: int) -> list[str]:
        self._count += 1
        values = self._random.integers(-127, 128, shape)
        scales = self._random.uniform(0.001, 0.004, channels)
        weights = self.builder.tensor(
            f"w{self._count}", shape, "int8", values, scale=scales, zero_point=0 * scales, axis=axis
        )
        bias = self._random.integers(-1000, 1000, channels)
        return [
            weights,
            self.builder.tensor(
                f"b{self._count}", (channels,), "int32", bias, scale=scales * 0.05, zero_point=0 * scales
            ),
        ]

    def convolution(
        self, data: str, side: int, depth: int, channels: int, stride: int, kernel: int, relu: bool
    ) -> str:
        result = self.tensor((1, side // stride, side // stride, channels))
        options = {"stride_h": stride, "stride_w": stride, "padding": "SAME"}
        activation = "RELU6" if relu else "NONE"
        if kernel == 3 and depth == channels:
            name, shape, axis = "DEPTHWISE_CONV_2D", (1, 3, 3, channels), 3
        else:
            name, shape, axis = "CONV_2D", (channels, kernel, kernel, depth), 0
        operands = [data, *self._parameters(shape, channels, axis)]
        self.builder.operator(name, operands, [result], **options, fused_activation_function=activation)
        return result

    def content(self) -> bytes:
        """Return the file."""
        data = first = self.tensor((1, _SIDE, _SIDE, 3))
        data, side, depth = self.convolution(data, _SIDE, 3, 32, 2, 3, True), _SIDE // 2, 32
        for expansion, channels, repetitions, first_stride in _GROUPS:
            for number in range(repetitions):
                stride, before = first_stride if number == 0 else 1, data
                if expansion > 1:
                    data = self.convolution(data, side, depth, depth * expansion, 1, 1, True)
                inner = depth * expansion
                data = self.convolution(data, side, inner, inner, stride, 3, True)
                side //= stride
                data = self.convolution(data, side, inner, channels, 1, 1, False)
                if stride == 1 and depth == channels:
                    result = self.tensor((1, side, side, channels))
                    self.builder.operator("ADD", [before, data], [result])
                    data = result
                depth = channels
        data = self.convolution(data, side, depth, _LAST, 1, 1, True)
        pooled = self.tensor((1, 1, 1, _LAST))
        options = {"filter_height": side, "filter_width": side, "stride_h": side, "stride_w": side}
        self.builder.operator("AVERAGE_POOL_2D", [data], [pooled], **options, padding="VALID")
        data = self.convolution(pooled, 1, _LAST, _CLASSES, 1, 1, False)
        return self.builder.finish([first], [data])


def measure(model: Path, cache: Path) -> tuple[float, int]:
    """Run the network once; return processor seconds, and the most memory of any process in KiB."""
    words = [sys.executable, "-m", "utvm", "model.run", "--model", str(model), "--board", "host"]
    with subprocess.Popen(
        words, cwd=ROOT, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, stdout=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    return used.ru_utime + used.ru_stime, used.ru_maxrss


def main() -> None:
    """Measure, print, and keep what was seen."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "mobilenet_v2.tflite"
        model.write_bytes(_Network().content())
        cold, memory = measure(model, Path(folder) / "cache")
        warm = min(measure(model, Path(folder) / "cache")[0] for _ in range(3))
        size = model.stat().st_size
    Console().print(
        f"{size:,} bytes: {cold:.1f} s with empty caches, {memory >> 10} MiB at most; {warm:.1f} s again"
    )
    seen.keep("compile", {"bytes": size, "cold_s": round(cold, 1), "warm_s": round(warm, 1), "mib": memory >> 10})


if __name__ == "__main__":
    main()
