# SPDX-License-Identifier: Apache-2.0
"""Random layers of TensorFlow Lite, against TensorFlow Lite Micro's reference kernels, bit for bit.

Integers must be equal; floats may differ in their last bits, as the ``exp`` of two libraries does.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from onnx_suite import Outcome
from programs import make_program, run_program
from tflite_layers import LAYERS, draw_layer, output_count
from tflite_micro.python.tflite_micro import runtime

from utvm.compiler import Library, from_tflite
from utvm.compiler.bounded import run_bounded
from utvm.compiler.target import ANY, Target
from utvm.errors import CompileError, UtvmError

Array = npt.NDArray[Any]

_LISTS = Path(__file__).parent / "tflite_suite.yaml"
_ARENA = 1 << 20  # Bytes; enough for all layers.


@dataclass
class Case:
    """A layer, its inputs and the outputs of the kernels; no outputs if the kernels do not run it.

    Attributes:
        layer: operator and element type, as in the lists.
        name: a C identifier.
    """

    layer: str
    name: str
    content: bytes
    sets: list[tuple[list[Array], list[Array]]]
    runs: bool = True


@functools.cache
def lists() -> dict[str, Any]:
    """The lists: ``refused``, from reason to layers; ``beyond``, layers that the kernels do not run."""
    loaded: dict[str, Any] = yaml.safe_load(_LISTS.read_text(encoding="utf-8"))
    return loaded


def layers() -> list[str]:
    """All operators in all of their element types."""
    return [f"{row}/{dtype}" for row, (_, types) in LAYERS.items() for dtype in types]


def cases(names: Sequence[str], number: int) -> list[Case]:
    """Draw a case of each layer, with the outputs of the reference kernels."""
    drawn = []
    for count, layer in enumerate(names):
        row, _, dtype = layer.rpartition("/")
        content, sets = draw_layer(row, dtype, number)
        # The kernels refuse some 8-bit weights of float layers, and read others as floats.
        drawn.append(Case(layer, f"m{count}", content, [(inputs, []) for inputs in sets], not row.startswith("hybrid")))
    compute_references([case for case in drawn if case.runs])
    return drawn


def compute_references(batch: Sequence[Case]) -> None:
    """Add the outputs of the reference kernels to cases."""
    for case, results in zip(batch, run_kernels(batch), strict=True):
        case.runs = results is not None
        case.sets = [
            (inputs, outputs) for (inputs, _), outputs in zip(case.sets, results or [[]] * len(case.sets), strict=True)
        ]


def run_kernels(batch: Sequence[Case]) -> list[list[list[Array]] | None]:
    """Run the kernels in a process of its own, which an unexpected model may end."""

    def run_case(case: Case) -> list[list[Array]] | None:
        try:
            interpreter = runtime.Interpreter.from_bytes(case.content, arena_size=_ARENA)
            results = []
            for inputs, _ in case.sets:
                for number, array in enumerate(inputs):
                    interpreter.set_input(array, number)
                interpreter.invoke()
                count = output_count(case.content)
                results.append([np.array(interpreter.get_output(number)) for number in range(count)])
        except (RuntimeError, ValueError):
            return None
        return results

    try:
        return run_bounded("the layers", "run the reference kernels", lambda: [run_case(case) for case in batch])
    except CompileError:
        if len(batch) == 1:
            return [None]
        half = len(batch) // 2
        return [*run_kernels(batch[:half]), *run_kernels(batch[half:])]


def judge(batch: Sequence[Case], directory: Path, target: Target = ANY) -> dict[str, Outcome]:
    """Compile and run layers.

    Returns:
        Outcomes by layer: ``right``, ``wrong``, ``refused``; ``beyond`` if the kernels do not run it.
    """
    outcomes, libraries = {}, {}
    for case, result in zip(batch, compile_cases(batch, target), strict=True):
        if isinstance(result, Library):
            libraries[case.name] = result
        else:
            outcomes[case.layer] = Outcome(case.layer, "refused" if case.runs else "beyond", result)
    runnable = [case for case in batch if case.name in libraries]
    program, rejected = make_program(runnable, libraries, directory)
    outcomes |= {
        case.layer: Outcome(case.layer, "wrong", rejected[case.name]) for case in runnable if case.name in rejected
    }
    runnable = [case for case in runnable if case.name not in rejected]
    for case, outputs in zip(runnable, run_program(runnable, libraries, program), strict=True):
        text = _difference(case, outputs)
        verdict = "beyond" if not case.runs and not isinstance(outputs, str) else "wrong" if text else "right"
        outcomes[case.layer] = Outcome(case.layer, verdict, text)
    return outcomes


def compile_cases(batch: Sequence[Case], target: Target) -> list[Library | str]:
    from utvm.compiler.build import build_library

    def compile_case(case: Case) -> Library | str:
        try:
            return build_library(from_tflite(case.content, case.name), case.name, target)
        except UtvmError as error:
            return str(error)

    return run_bounded("the layers", "compile them", lambda: [compile_case(case) for case in batch])


def _difference(case: Case, outputs: list[list[Array]] | str) -> str:
    if isinstance(outputs, str):
        return outputs
    for (_, expected_outputs), results in zip(case.sets, outputs, strict=True):
        for expected, result in zip(expected_outputs, results, strict=False):
            # The interpreter shows a scalar as one element.
            shape = expected.shape if result.size == expected.size == 1 else result.shape
            if (shape, result.dtype) != (expected.shape, expected.dtype):
                return f"{result.shape} of {result.dtype} where {expected.shape} of {expected.dtype} are right"
            if not _same(expected, result.reshape(shape)):
                indices = np.flatnonzero(result.ravel() != expected.ravel())[:6]
                actual_values, expected_values = result.ravel()[indices], expected.ravel()[indices]
                return f"{actual_values} where {expected_values} are right, at {indices} of {expected.shape}"
    return ""


def _same(expected: Array, result: Array) -> bool:
    if expected.dtype.kind == "f":
        return np.allclose(result, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    return np.array_equal(result, expected)


def page(known: Mapping[str, Any]) -> str:
    """Page of supported TensorFlow Lite operators, from the two lists."""
    reasons = {layer: reason for reason, names in known["refused"].items() for layer in names}
    rows = []
    for row, (_, types) in sorted(LAYERS.items()):
        correct = [dtype for dtype in types if f"{row}/{dtype}" not in {*reasons, *known["beyond"]}]
        refusals = "; ".join(sorted({reasons[f"{row}/{dtype}"] for dtype in types if f"{row}/{dtype}" in reasons}))
        if correct or refusals:
            rows.append(f"| {row} | {', '.join(correct)} | {refusals} |")
    return _PAGE.format(rows="\n".join(rows))


_PAGE = """
## TensorFlow Lite
Each operator that TensorFlow Lite Micro registers, except the two below, is tested in each element type that its
reference kernels support. Random layers, over shapes, strides, paddings, activations and scales, equal the
kernels' integers bit for bit, and their floats except for the last bits. int16 is 16x8: activations of 16 bits,
weights of 8, biases of 64 or 32.

| operator | equal to the kernels | refused |
|---|---|---|
{rows}

Where the kernels differ from TensorFlow Lite, utvm follows the kernels: RELU6 ignores the scale of its result,
CUMSUM of int8 starts at minus the zero point, and wraps around after some 30 large numbers. Element types that
the kernels do not support (mostly uint8) are computed in floats between quantised tensors, or refused.

A file with several signatures gives its first graph, as there; `--set signature=NAME` chooses another.

`TFLite_Detection_PostProcess` gives the kernel's boxes; boxes that are empty, which end the kernel with an error,
give none. It takes uint8 and int8, too, as TensorFlow Lite does. `TFLM_DECODE`'s weights (tables, Huffman's codes,
pruned) are unpacked when the file is read. Refused are `BasicClassifier` (without a public
description) and `ethos-u` (an NPU's commands). A `CIRCULAR_BUFFER` with `cycles_max` above 1 is refused, too: it
ends most runs before there is an output, and the kernels' output then holds bytes of other tensors. `SignalRfft` and
`SignalIrfft` take each length whose half is a product of 2, 3 and 5; at others the kernels crash, and utvm refuses
them. Results that the kernels leave undefined (energies outside the range, frames before the first whole one) are 0.

uint8 models from before 2020, IF and WHILE, state between runs, and int8 weights for real numbers
(FULLY_CONNECTED, CONV_2D, DEPTHWISE_CONV_2D, BATCH_MATMUL, SVDF and UNIDIRECTIONAL_SEQUENCE_LSTM, which these
kernels refuse) have separate tests: [compiler.md](compiler.md).
"""
