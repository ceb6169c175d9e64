# SPDX-License-Identifier: Apache-2.0
"""Published architectures with random weights, whose trained files are not here.

Weights are normally distributed and fill int8's range in each channel. No channel is constant, unlike in some trained
networks.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from models.tflite_writer import Builder

_SPREAD = 36.0  # Standard deviation of the weights.
_VALUES = 60.0  # Assumed root mean square of a layer's inputs, less their zero point.


class Chain:
    """A network whose layers follow one another, with scales that use the range of int8."""

    def __init__(self, shape: tuple[int, ...], zero: int, scale: float = 0.1) -> None:
        self._builder = Builder()
        self._random = np.random.default_rng(7)
        self._input = self._last = self._builder.tensor("x", shape, "int8", scale=scale, zero_point=zero)
        self._shape, self._scale, self._zero = shape, scale, zero

    def layer(
        self, operator: str, weights: tuple[int, ...], shape: tuple[int, ...], *, relu: bool, **options: Any
    ) -> None:
        """Append an operator with weights; its output's scale is that of sums of independent products."""
        axis = len(weights) - 1 if operator.startswith("DEPTHWISE") else 0
        per_channel = operator != "FULLY_CONNECTED"
        channels = weights[axis]
        values = np.clip(np.rint(self._random.normal(0, _SPREAD, weights)), -127, 127).astype(np.int8)
        scales = self._random.uniform(0.003, 0.006, channels if per_channel else 1).astype(np.float32)
        length = int(np.prod(weights)) // channels
        reach = float(np.sqrt(length)) * _SPREAD * _VALUES
        bias = self._random.integers(-int(reach), int(reach), channels).astype(np.int32)
        scale = self._scale * 0.0045 * reach / (80 if relu else 40)
        parts = [
            self._constant("weights", values, scale=scales, axis=axis),
            self._constant("bias", bias, scale=np.float32(self._scale) * scales),
        ]
        activation = "RELU" if relu else "NONE"
        self._append(
            operator, shape, scale, -128 if relu else 4, *parts, fused_activation_function=activation, **options
        )

    def keep(self, operator: str, shape: tuple[int, ...], *parts: str, **options: Any) -> None:
        """Append an operator whose output has its input's scale."""
        self._append(operator, shape, self._scale, self._zero, *parts, **options)

    def lstm(self, units: int) -> None:
        """Append an LSTM with scales as the converter chooses them."""
        (_, steps, depth), places = self._shape, (1, 2, 3, 4, 5, 6, 7, 8)
        operands: list[str | None] = [None] * 23
        for place in places:
            shape = (units, depth if place < 5 else units)
            weights = np.clip(np.rint(self._random.normal(0, _SPREAD, shape)), -127, 127).astype(np.int8)
            operands[place - 1] = self._constant(f"weights{place}", weights, scale=0.004)
        for place in (12, 13, 14, 15):
            bias = self._random.integers(-9000, 9000, units).astype(np.int32)
            operands[place - 1] = self._constant(f"bias{place}", bias)
        hidden, cell = ("hidden", "int8", 1 / 128), ("cell", "int16", 2.0**-11)
        for place, (name, dtype, scale) in ((18, hidden), (19, cell)):
            operands[place - 1] = self._builder.tensor(name, (1, units), dtype, scale=scale, variable=True)
        options = {"fused_activation_function": "TANH", "time_major": False, "cell_clip": 0.0}
        self._append("UNIDIRECTIONAL_SEQUENCE_LSTM", (1, steps, units), 1 / 128, 0, *operands, **options)

    def flatten(self) -> None:
        target = np.array([1, self._shape[-1]], np.int32)
        self.keep("RESHAPE", (1, self._shape[-1]), self._constant("shape", target))

    def softmax(self) -> None:
        self._append("SOFTMAX", self._shape, 1 / 256, -128)

    def finish(self) -> bytes:
        return self._builder.finish([self._input], [self._last])

    def _append(
        self, operator: str, shape: tuple[int, ...], scale: float, zero: int, *parts: str | None, **options: Any
    ) -> None:
        name = self._builder.tensor(f"{operator}_{self._last}", shape, "int8", scale=scale, zero_point=zero)
        self._builder.operator(operator, [self._last, *parts], [name], **options)
        self._last, self._shape, self._scale, self._zero = name, shape, scale, zero

    def _constant(self, name: str, array: npt.NDArray[Any], **keywords: Any) -> str:
        return self._builder.tensor(f"{name}_{self._last}", array.shape, str(array.dtype), array, **keywords)
