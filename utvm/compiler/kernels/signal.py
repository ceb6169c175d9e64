# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite Micro's custom operators for sound and streaming, as C helpers with that library's integers."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, tirx
from tvm.script.ir_builder import tirx as building

from utvm.compiler.kernels import Kernel, functions
from utvm.compiler.kernels.arithmetic import number
from utvm.compiler.kernels.cores.constants import call_helper
from utvm.compiler.kernels.use import Use
from utvm.errors import CompileError

_LONGEST = 1 << 15  # Counts of samples in a state have 16 bits.
_GAINS = 125  # Entries of PCAN's table: three for each number of bits, and the first ones.

# log2(1 + i / 128) - i / 128 with 16 fractional bits, as in signal/src/log.cc.
_LOG_TABLE = np.array([round((math.log2(1 + i / 128) - i / 128) * 65536) for i in range(129)] + [0], np.int32)


@dataclass(frozen=True)
class _Signal:
    """An operator as a call of a C helper: outputs, inputs, then numbers.

    Attributes:
        helper: the helper's name; ``{}`` stands for the first operand's element type.
        kinds: the possible element types of inputs and outputs.
        numbers: (``Use``) to the last arguments; raises CompileError for what the kernels do not run.
        memory: it has one more input and output, the state.
        tables: constants behind the inputs.
    """

    helper: str
    kinds: tuple[str, ...]
    numbers: Callable[[Use], Sequence[int]]
    memory: bool = False
    tables: tuple[npt.NDArray[Any], ...] = ()


def _setting(use: Use, name: str, low: int = -(2**31), high: int = 2**31 - 1) -> int:
    value = use.operator.setting(name)
    if not low <= value <= high:
        raise CompileError(f"its {name} is {value}, which is out of range")
    return value


def _need(fits: bool, what: str) -> None:
    if not fits:
        raise CompileError(f"its {what} do not fit together")


def _rows(use: Use) -> tuple[int, int]:
    """Return the number of rows of the first operand, and their length."""
    shape = use.input(0).shape
    _need(bool(shape) and shape[-1] > 0, "shapes")
    return use.input(0).size // shape[-1], shape[-1]


def _window(use: Use) -> tuple[int, ...]:
    sizes = use.input(0).size, use.input(1).size
    _need(use.result.size == sizes[0] and sizes[0] % max(sizes[1], 1) == 0, "sizes of input, window and result")
    return *sizes, _setting(use, "shift", 0, 31)


def _same(use: Use, *settings: tuple[str, int, int]) -> tuple[int, ...]:
    size = use.input(0).size
    _need(all(tensor.size in (1, size) for tensor in use.outputs) and use.result.size == size, "sizes")
    return size, *(_setting(use, *setting) for setting in settings)


def _energy(use: Use) -> tuple[int, ...]:
    size = use.result.size
    _need(use.input(0).size >= 2 * size, "sizes of input and result")
    return size, _setting(use, "start_index", 0, size), _setting(use, "end_index", 0, size)


def _filter_bank(use: Use) -> tuple[int]:
    channels = _setting(use, "num_channels", 1, _LONGEST)
    weights, unweights, frequencies, places, widths = (use.constant(place) for place in range(1, 6))
    _need(min(frequencies.size, places.size, widths.size) > channels and use.result.size == channels, "channels")
    ends = widths.astype(np.int64)[: channels + 1]
    used = ends > 0
    for starts, limit in ((frequencies, use.input(0).size), (places, min(weights.size, unweights.size))):
        begins = starts.astype(np.int64)[: channels + 1][used]
        _need(bool(np.all(begins >= 0) and np.all(begins + ends[used] <= limit)), "channels and weights")
    return (channels,)


def _pcan(use: Use) -> tuple[int, ...]:
    _need(use.input(1).size == use.input(0).size and use.input(2).size >= _GAINS, "operands")
    return _same(use, ("snr_shift", 0, 63))


def _delay(use: Use) -> tuple[int, ...]:
    _need(use.result.size == use.input(0).size, "sizes")
    return *_rows(use), _setting(use, "delay_length", 0, _LONGEST)


def _framer(use: Use) -> tuple[int, ...]:
    rows, length = _rows(use)
    size, step = _setting(use, "frame_size", 1, _LONGEST - 1), _setting(use, "frame_step", 1, _LONGEST - 1)
    begin = size - step if _setting(use, "prefill") else 0
    _need(length % step == 0 and begin >= 0 and use.result.size == rows * (length // step) * size, "frames")
    return rows, length // step, size, step, -(-size // step) * step, begin


def _stacker(use: Use) -> tuple[int, ...]:
    channels, left, right, step = (
        _setting(use, name, 0, _LONGEST)
        for name in ("num_channels", "stacker_left_context", "stacker_right_context", "stacker_step")
    )
    size = channels * (left + right + 1)
    fits = use.input(0).size == channels and use.result.size == size < _LONGEST - 1 and 0 < step * channels <= size
    _need(fits, "frames")
    return channels, left, size, step * channels


def _overlap(use: Use) -> tuple[int, ...]:
    rows, size = _rows(use)
    frames = use.input(0).shape[-2] if len(use.input(0).shape) > 1 else 1
    step = _setting(use, "frame_step", 1, size)
    _need(use.result.size == rows * step, "frames")
    return rows // frames, frames, size, step


def _circular(use: Use) -> tuple[int, ...]:
    shape = use.result.shape
    _need(len(shape) == 4 and use.input(0).size * shape[1] == use.result.size, "slots")
    if (use.operator.setting("cycles_max", 0) or (1 if shape[1] in (5, 13, 25) else 2)) != 1:
        raise CompileError(
            "it ends most runs before the model has an answer, which is not supported",
            "its cycles_max must be 1: split the model there, and run the second part every so many times",
        )
    return use.result.size, use.input(0).size


_U32, _ROOTS = "uint32 > uint32", "uint64 int32 > uint32"
_SMOOTHING = [
    ("alternate_one_minus_smoothing",),
    ("alternate_smoothing",),
    ("clamping",),
    ("min_signal_remaining",),
    ("one_minus_smoothing",),
    ("smoothing",),
    ("smoothing_bits", 0, 31),
    ("spectral_subtraction_bits", 0, 63),
]
_SIGNALS = {
    "SignalWindow": _Signal("signal_window", ("int16 int16 > int16",), _window),
    "SignalFftAutoScale": _Signal("signal_auto_scale", ("int16 > int16 int32",), _same),
    "SignalEnergy": _Signal("signal_energy", ("int16 > uint32",), _energy),
    "SignalFilterBank": _Signal("signal_filter_bank", ("uint32 int16 int16 int16 int16 int16 > uint64",), _filter_bank),
    "SignalFilterBankSquareRoot": _Signal("signal_roots", (_ROOTS,), _same),
    "SignalFilterBankSpectralSubtraction": _Signal(
        "signal_subtraction", (f"{_U32} uint32",), lambda use: _same(use, *_SMOOTHING), memory=True
    ),
    "SignalPCAN": _Signal("signal_pcan", ("uint32 uint32 int16 > uint32",), _pcan),
    "SignalFilterBankLog": _Signal(
        "signal_log",
        ("uint32 > int16",),
        lambda use: _same(use, ("input_correction_bits", 0, 31), ("output_scale",)),
        tables=(_LOG_TABLE,),
    ),
    "SignalDelay": _Signal("signal_delay", ("int16 > int16",), _delay, memory=True),
    "SignalFramer": _Signal("signal_framer", ("int16 > int16 bool",), _framer, memory=True),
    "SignalStacker": _Signal("signal_stacker", ("int16 > int16 bool",), _stacker, memory=True),
    "SignalOverlapAdd": _Signal(
        "signal_overlap_{}", ("int16 > int16", "float32 > float32"), _overlap, memory=True
    ),
    "CIRCULAR_BUFFER": _Signal("circular_buffer", ("int8 > int8",), _circular, memory=True),
}


def _check_kinds(use: Use, kinds: Sequence[str], memory: bool = False) -> None:
    inputs = [use.dtype(place) for place in range(len(use.inputs) - memory)]
    given = f"{' '.join(inputs)} > {' '.join(item.dtype for item in use.outputs[: len(use.outputs) - memory])}"
    if given in kinds:
        return
    if memory and f"{' '.join([*inputs, use.dtype(len(inputs))])} > {' '.join(x.dtype for x in use.outputs)}" in kinds:
        raise CompileError("it keeps a state, which is not supported in a graph that IF or WHILE calls")
    raise CompileError(f"it is given {given.replace(' >', ', gives')}; supported: {'; '.join(kinds)}")


def _call(signal: _Signal, use: Use, operands: list[Any]) -> Any:
    _check_kinds(use, signal.kinds, signal.memory)
    values = [number(value) for value in signal.numbers(use)]
    helper = signal.helper.format(use.dtype())

    def body(read: Sequence[Any], writes: Sequence[Any], own: Mapping[str, Any]) -> None:
        call_helper(helper, *(tirx.address_of(buffer[0]) for buffer in (*writes, *read)), *values)

    return _add(use, helper, [*operands, *signal.tables], {}, body)


def _add(
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
    """Real FFTs: rows are widened to ``first``, and transformed by way of its second part to ``last``."""
    _check_kinds(use, [f"{dtype} > {dtype}" for dtype in ("int16", "int32", "float32")])
    dtype, length = use.dtype(), _setting(use, "fft_length", 4, 1 << 14)
    (rows, given), (real, both) = _rows(use), (length, length + 2)
    fits = (given == both, real) if inverse else (given <= real, both)
    _need(length & (length - 1) == 0 and fits[0] and use.result.size == rows * fits[1], "length and shapes")
    bits, wide = (15 if dtype == "int16" else 31), "float32" if dtype == "float32" else "int32"
    tables = [_turns(length // 2, inverse, bits, dtype), _super_turns(length // 2, inverse, bits, dtype)]
    scratch = {"first": ((both + length,), wide), "last": ((both,), wide)}
    last = [number(length // 2), *([] if dtype == "float32" else [number(bits)])]

    def body(read: Sequence[Any], writes: Sequence[Any], own: Mapping[str, Any]) -> None:
        first, end = own["first"], own["last"]
        pointers = [tirx.address_of(item) for item in (end[0], first[both], first[0], *(table[0] for table in read[1:]))]
        with building.serial(0, rows) as row:
            with building.serial(0, both + length) as at:
                first[at] = tirx.const(0, wide)
            with building.serial(0, given) as at:
                first[at] = read[0][row * given + at].astype(wide)
            call_helper(f"{'irfft' if inverse else 'rfft'}_{wide}", *pointers, *last)
            with building.serial(0, fits[1]) as at:
                writes[0][row * fits[1] + at] = end[at].astype(dtype)

    return _add(use, f"signal_{'irfft' if inverse else 'rfft'}_{dtype}", [*operands, *tables], scratch, body)


def _turns(count: int, inverse: bool, bits: int, dtype: str) -> npt.NDArray[Any]:
    return _pairs([(2 if inverse else -2) * math.pi * at / count for at in range(count)], bits, dtype)


def _super_turns(count: int, inverse: bool, bits: int, dtype: str) -> npt.NDArray[Any]:
    angle = math.pi if inverse else -math.pi
    return _pairs([angle * ((at + 1) / count + 0.5) for at in range(count // 2)], bits, dtype)


def _pairs(angles: Sequence[float], bits: int, dtype: str) -> npt.NDArray[Any]:
    values = np.array([[math.cos(angle), math.sin(angle)] for angle in angles]).ravel()
    if dtype == "float32":
        return values.astype(np.float32)
    return np.floor(0.5 + (2**bits - 1) * values).astype(np.int32)


KERNEL = Kernel(
    tflite={
        **{name: functools.partial(_call, signal) for name, signal in _SIGNALS.items()},
        "SignalRfft": functools.partial(_transform, False),
        "SignalIrfft": functools.partial(_transform, True),
    }
)
