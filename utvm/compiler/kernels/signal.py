# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite Micro's custom operators for sound and streaming, bit-exact, as calls of C helpers."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, tirx
from tvm.script.ir_builder import tirx as building

from utvm.base.storage.config import read_yaml
from utvm.compiler.kernels import Kernel, functions
from utvm.compiler.kernels.arithmetic import number
from utvm.compiler.kernels.cores.constants import call_helper
from utvm.compiler.kernels.use import Use
from utvm.errors import CompileError

_GAINS = 125  # Entries of PCAN's gain table.
_SIGNALS = read_yaml(Path(__file__).with_suffix(".yaml"))[0]

# log2(1 + i / 128) - i / 128 with 16 fractional bits, as in signal/src/log.cc.
_LOG_TABLE = np.array([round((math.log2(1 + i / 128) - i / 128) * 65536) for i in range(129)] + [0], np.int32)


def _call(name: str, use: Use, operands: list[Any]) -> Any:
    signal = _SIGNALS[name]
    _check_kinds(use, signal["kinds"])
    settings = [_setting(use, key, *limits) for key, limits in signal["settings"].items()]
    fits, sizes = _sizes(name, use, settings)
    if not fits:
        raise CompileError("its shapes and options do not match")
    helper = signal["helper"].format(use.dtype())

    def body(read: Sequence[Any], writes: Sequence[Any], own: Mapping[str, Any]) -> None:
        pointers = [tirx.address_of(buffer[0]) for buffer in (*writes, *read)]
        call_helper(helper, *pointers, *map(number, (*sizes, *settings)))

    return add_flat(use, helper, [*operands, *([_LOG_TABLE] if helper == "signal_log" else [])], {}, body)


def _setting(use: Use, name: str, low: int, high: int) -> int:
    value: int = use.operator.setting(name)
    if not low <= value <= high:
        raise CompileError(f"its {name} is {value}; supported: {low} to {high}")
    return value


def _check_kinds(use: Use, kinds: Sequence[str]) -> None:
    inputs = [use.dtype(place) for place in range(len(use.inputs))]
    types = f"{' '.join(inputs)} > {' '.join(item.dtype for item in use.outputs)}"
    if types not in kinds:
        raise CompileError(f"element types {types} are not supported; supported: {' or '.join(kinds)}")


def _sizes(name: str, use: Use, settings: Sequence[int]) -> tuple[bool, tuple[int, ...]]:
    """Return whether shapes and options match, and the sizes that the helper takes."""
    size, shape, result = use.input(0).size, use.input(0).shape or (1,), use.result.size
    rows, length = size // max(shape[-1], 1), shape[-1]
    fits = result == size
    sizes: tuple[int, ...] = (size,)
    if name == "SignalWindow":
        sizes = (size, use.input(1).size)
        fits = fits and sizes[1] > 0 and size % sizes[1] == 0
    elif name == "SignalEnergy":
        fits, sizes = size >= 2 * result and max(settings) <= result, (result,)
    elif name == "SignalFilterBank":
        fits, sizes = result == settings[0] and _channels_fit(use, settings[0]), ()
    elif name == "SignalPCAN":
        fits = fits and use.input(1).size == size and use.input(2).size >= _GAINS
    elif name == "SignalDelay":
        sizes = (rows, length)
    elif name == "SignalFramer":
        frame, step, _ = settings
        fits, sizes = (result * step == size * frame and length % step == 0 and step <= frame, (rows, length // step))
    elif name == "SignalStacker":
        channels, left, right, step = settings
        both, sizes = left + right + 1, ()
        fits = size == channels and result == channels * both < 1 << 15 and step <= both
    elif name == "SignalOverlapAdd":
        frames = shape[-2] if len(shape) > 1 else 1
        fits, sizes = settings[0] <= length and result == rows * settings[0], (rows // frames, frames, length)
    elif name == "CIRCULAR_BUFFER":
        slots = use.result.shape[1] if len(use.result.shape) == 4 else 0
        fits, sizes = size * slots == result, (result, size)
        if (use.operator.setting("cycles_max", 0) or (1 if slots in (5, 13, 25) else 2)) != 1:
            raise CompileError(
                "it ends most runs before there is an output",
                "its cycles_max must be 1: split the model there, and run its second part less often",
            )
    return fits, sizes


def _channels_fit(use: Use, channels: int) -> bool:
    weights, unweights, *tables = (use.constant(place).astype(np.int64) for place in range(1, 6))
    if min(table.size for table in tables) <= channels:
        return False
    frequencies, places, widths = (table[: channels + 1] for table in tables)
    limits = ((frequencies, use.input(0).size), (places, min(weights.size, unweights.size)))
    return all(np.all((widths <= 0) | (starts >= 0) & (starts + widths <= most)) for starts, most in limits)


def add_flat(
    use: Use,
    name: str,
    operands: Sequence[Any],
    scratch: Mapping[str, tuple[tuple[int, ...], str]],
    body: Callable[[Sequence[Any], Sequence[Any], Mapping[str, Any]], None],
) -> Any:
    flat = [
        relax.const(item, str(item.dtype))
        if isinstance(item, np.ndarray)
        else use.builder.emit(relax.op.reshape(item, (math.prod(int(extent) for extent in item.ty.shape),)))
        for item in operands
    ]
    results = [replace(result, shape=(result.size,)) for result in use.outputs]
    return functions.add_loops(use.builder, name, flat, results, scratch, body, 0)


def _transform(inverse: bool, use: Use, operands: list[Any]) -> Any:
    """Real FFT of each row: widened into ``first``, transformed into ``last``; the end of ``first`` is scratch."""
    _check_kinds(use, [f"{dtype} > {dtype}" for dtype in ("int16", "int32", "float32")])
    dtype, length, shape = use.dtype(), _setting(use, "fft_length", 4, 1 << 14), use.input(0).shape or (1,)
    real, both, given = length, length + 2, shape[-1]
    rows, end = use.input(0).size // max(given, 1), length if inverse else length + 2
    fits = given == both if inverse else 0 < given <= real
    if length % 2 or pow(30, 13, length // 2):  # Half has another factor than 2, 3 and 5; the kernels crash.
        raise CompileError(f"its fft_length is {length}; half of it must be a product of 2, 3 and 5")
    if not fits or use.result.size != rows * end:
        raise CompileError("its shapes must match its fft_length")
    bits, wide = (15 if dtype == "int16" else 31), "float32" if dtype == "float32" else "int32"
    half, angle = length // 2, math.pi if inverse else -math.pi
    turns = [2 * angle * at / half for at in range(half)]
    turns_of_parts = [angle * ((at + 1) / half + 0.5) for at in range(half // 2)]
    tables = [_pairs(angles, bits, dtype) for angles in (turns, turns_of_parts)]
    scratch = {"first": ((both + length,), wide), "last": ((both,), wide)}
    last = [number(half), *([] if dtype == "float32" else [number(bits)])]

    def body(read: Sequence[Any], writes: Sequence[Any], own: Mapping[str, Any]) -> None:
        first, work = own["first"], own["last"]
        pointers = [
            tirx.address_of(item) for item in (work[0], first[both], first[0], *(table[0] for table in read[1:]))
        ]
        with building.serial(0, rows) as row:
            with building.serial(0, both + length) as at:
                first[at] = tirx.const(0, wide)
            with building.serial(0, given) as at:
                first[at] = read[0][row * given + at].astype(wide)
            call_helper(f"{'irfft' if inverse else 'rfft'}_{wide}", *pointers, *last)
            with building.serial(0, end) as at:
                writes[0][row * end + at] = work[at].astype(dtype)

    return add_flat(use, f"signal_{'irfft' if inverse else 'rfft'}_{dtype}", [*operands, *tables], scratch, body)


def _pairs(angles: Sequence[float], bits: int, dtype: str) -> npt.NDArray[Any]:
    values = np.array([[math.cos(angle), math.sin(angle)] for angle in angles]).ravel()
    if dtype == "float32":
        return values.astype(np.float32)
    return np.asarray(np.floor(0.5 + (2**bits - 1) * values), np.int32)


KERNEL = Kernel(
    tflite={
        **{name: functools.partial(_call, name) for name in _SIGNALS},
        "SignalRfft": functools.partial(_transform, False),
        "SignalIrfft": functools.partial(_transform, True),
    }
)
