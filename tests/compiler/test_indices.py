# SPDX-License-Identifier: Apache-2.0
"""An out-of-range index in a model's input is a defined error, without access to foreign memory.

The address sanitizer checks each tensor, the working memory and the model's constants.
"""

import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from host_library import FLAGS, write_sources
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from hil_tests.operator_cases import OPERATOR_CASES
from models.tflite_writer import Builder
from utvm.base.process import run_tool
from utvm.compiler import Library, Model, compile_model, from_onnx, from_relax, from_tflite
from utvm.compiler.library import INDEX_OUT_OF_RANGE
from utvm.compiler.target import Target
from utvm.errors import CompileError

pytestmark = pytest.mark.slow

Array = npt.NDArray[Any]
_KINDS = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
          "int8": TensorProto.INT8}  # fmt: skip
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
BYTES = np.arange(12, dtype=np.int8).reshape(4, 3)

# Runs a model for each set of inputs on standard input; prints its return value and outputs.
_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "m.h"

int main(void)
{
    const size_t in[] = {%(inputs)s}, out[] = {%(outputs)s};
    enum {INPUTS = sizeof in / sizeof *in, OUTPUTS = sizeof out / sizeof *out};
    for (;;) {
        void *inputs[INPUTS], *outputs[OUTPUTS];
        uint8_t *arena = malloc(%(arena)s);
        for (size_t i = 0; i < INPUTS; i++) {
            inputs[i] = malloc(in[i]);
            if (fread(inputs[i], 1, in[i], stdin) != in[i]) return 0;
        }
        for (size_t i = 0; i < OUTPUTS; i++) outputs[i] = calloc(1, out[i]);
        const int32_t status = m_run((const void *const *)inputs, outputs, arena);
        fwrite(&status, sizeof status, 1, stdout);
        for (size_t i = 0; i < OUTPUTS; i++) { fwrite(outputs[i], 1, out[i], stdout); free(outputs[i]); }
        for (size_t i = 0; i < INPUTS; i++) free(inputs[i]);
        free(arena);
    }
}
"""


@dataclass(frozen=True)
class Case:
    """A model whose second input holds indices; ``golden`` computes its output for valid indices."""

    model: Callable[[], Model]
    inputs: tuple[Array, ...]
    golden: Callable[..., Array]
    extent: int
    negative: bool = True


def onnx_model(operator: str, inputs: Sequence[Array], shape: Sequence[int], **attributes: Any) -> Model:
    names = [f"in{number}" for number in range(len(inputs))]
    values = [
        helper.make_tensor_value_info(name, _KINDS[str(array.dtype)], array.shape)
        for name, array in zip(names, inputs, strict=True)
    ]
    result = helper.make_tensor_value_info("out", _KINDS[str(inputs[0].dtype)], shape)
    node = helper.make_node(operator, names, ["out"], **attributes)
    graph = helper.make_graph([node], "g", values, [result])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return from_onnx(proto.SerializeToString(), "m")


def onnx_case(
    operator: str, inputs: tuple[Array, ...], golden: Callable[..., Array], extent: int, **attributes: Any
) -> Case:
    shape = golden(*inputs).shape
    return Case(lambda: onnx_model(operator, inputs, shape, **attributes), inputs, golden, extent)


def embedded() -> Model:
    """A constant table, indexed by an input, like an embedding."""
    value = helper.make_tensor_value_info("i", TensorProto.INT64, [2])
    first = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    nodes = [helper.make_node("Gather", ["t", "i"], ["g"]), helper.make_node("Add", ["g", "x"], ["y"])]
    graph = helper.make_graph(nodes, "g", [first, value], [result], [numpy_helper.from_array(ROWS, "t")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return from_onnx(proto.SerializeToString(), "m")


def tflite_case(operator: str, x: Array, indices: Array, golden: Callable[..., Array], **options: Any) -> Case:
    scale = {"scale": 0.05, "zero_point": -3} if x.dtype == np.int8 else {}

    def model() -> Model:
        builder = Builder()
        builder.tensor("x", x.shape, str(x.dtype), **scale)
        builder.tensor("i", indices.shape, "int32")
        builder.tensor("y", golden(x, indices).shape, str(x.dtype), **scale)
        builder.operator(operator, ["i", "x"] if operator == "EMBEDDING_LOOKUP" else ["x", "i"], ["y"], **options)
        return from_tflite(builder.finish(["x", "i"], ["y"]), "m")

    return Case(model, (x, indices), golden, x.shape[0], negative=False)


def relax_case(
    operator: Callable[..., Any], golden: Callable[..., Array], extent: int, *inputs: Array, negative: bool = False
) -> Case:
    """A case of an operator of imported PyTorch models."""
    return Case(lambda: relax_model(operator, inputs), inputs, golden, extent, negative)


def relax_model(operator: Callable[..., Any], inputs: Sequence[Array]) -> Model:
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(f"in{number}", relax.TensorType(array.shape, str(array.dtype))) for number, array in enumerate(inputs)
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(operator(*variables))
        builder.emit_func_output(result)
    return from_relax(builder.get(), "m")


def scattered(x: Array, i: Array, updates: Array) -> Array:
    result = x.copy()
    result[i[:, 0]] = updates
    return result


def put(x: Array, i: Array, j: Array, values: Array) -> Array:
    result = x.copy()
    result[i, j] = values
    return result


def put_by_index(x: Array, i: Array, values: Array) -> Array:
    result = x.copy()
    result[i] = values
    return result


I64, I32 = np.array([2, 1]), np.array([3, 0], np.int32)
CASES = {
    "gather": onnx_case("Gather", (ROWS, I64), lambda x, i: x[i], 4, axis=0),
    "gather of columns, int32": onnx_case("Gather", (ROWS, I32 % 3), lambda x, i: x[:, i], 3, axis=1),
    "gather int8": onnx_case("Gather", (BYTES, I64), lambda x, i: x[i], 4, axis=0),
    "embedding": Case(embedded, (np.ones((2, 3), np.float32), I64), lambda x, i: ROWS[i] + x, 4),
    "gather elements": onnx_case("GatherElements", (ROWS, np.array([[0, 1, 3]])),
                                 lambda x, i: np.take_along_axis(x, i, 0), 4, axis=0),
    "gather nd": onnx_case("GatherND", (ROWS, np.array([[3, 0], [1, 2]])), lambda x, i: x[i[:, 0], i[:, 1]], 4),
    "scatter nd": onnx_case("ScatterND", (ROWS, I64.reshape(2, 1), -ROWS[:2]), scattered, 4),
    "tflite gather": tflite_case("GATHER", ROWS, I32, lambda x, i: x[i], axis=0),
    "tflite gather int8": tflite_case("GATHER", BYTES, I32, lambda x, i: x[i], axis=0),
    "tflite gather nd": tflite_case("GATHER_ND", ROWS, I32.reshape(2, 1), lambda x, i: x[i[:, 0]]),
    "tflite gather nd int8": tflite_case("GATHER_ND", BYTES, I32.reshape(2, 1), lambda x, i: x[i[:, 0]]),
    "tflite embedding": tflite_case("EMBEDDING_LOOKUP", ROWS, I32, lambda x, i: x[i]),
    "relax take": relax_case(lambda x, i: relax.op.take(x, i, axis=0), lambda x, i: x[i], 4, ROWS, I64),
    "relax take of columns": relax_case(lambda x, i: relax.op.take(x, i, axis=1), lambda x, i: x[:, i],
                                        3, ROWS, I32 % 3),
    "relax take of all": relax_case(relax.op.take, lambda x, i: x[i], 12, ROWS.reshape(-1), I64),
    "relax index": relax_case(lambda x, i: relax.op.index_tensor(x, [i]), lambda x, i: x[i], 4, ROWS, I64),
    "relax index by two": relax_case(lambda x, i, j: relax.op.index_tensor(x, [i, j]),
                                     lambda x, i, j: x[i, j], 4, ROWS, I64, np.array([0, 2])),
    "relax put": relax_case(lambda x, i, j, v: relax.op.index_put(x, (i, j), v), put, 4, ROWS, I64,
                            np.array([0, 2]), -ROWS[0, :2], negative=True),
    "relax put by one": relax_case(relax.op.index_put, put_by_index, 12, ROWS.reshape(-1), I64, -ROWS[1, :2],
                                   negative=True),
    "relax gather": relax_case(lambda x, i: relax.op.gather_elements(x, i, axis=0),
                               lambda x, i: np.take_along_axis(x, i, 0), 4, ROWS, np.array([[0, 1, 3]])),
    "relax gather nd": relax_case(relax.op.gather_nd, lambda x, i: x[i[:, 0]], 4, ROWS, I64.reshape(2, 1)),
    "relax gather nd, in batches": relax_case(lambda x, i: relax.op.gather_nd(x, i, batch_dims=1),
                                              lambda x, i: np.take_along_axis(x, i, 1)[:, 0], 3, ROWS,
                                              np.array([[0], [2], [1], [2]])),
    "relax loss": relax_case(lambda x, i, w: relax.op.nn.nll_loss(x, i, w, reduction="none"),
                             lambda x, i, w: -x[np.arange(4), i] * w[i], 3, ROWS + 1, np.array([0, 2, 1, 2]),
                             np.array([1, 2, 0.5], np.float32)),
}  # fmt: skip


def hostile(case: Case) -> list[Array]:
    """Indices with one value out of range each."""
    indices = case.inputs[1]
    limits = np.iinfo(indices.dtype)
    lowest = -case.extent - 1 if case.negative else -1
    bad_values = [case.extent, lowest, limits.max, limits.min, limits.max // 4, 1 << 20, -(1 << 20)]
    results = []
    for number, value in enumerate(bad_values):
        changed = indices.copy()
        changed.reshape(-1)[number % (1 if indices.shape[-1] == 2 and indices.ndim == 2 else indices.size)] = value
        results.append(changed)
    return results


def run_library(library: Library, folder: Path, runs: Sequence[Sequence[Array]]) -> list[tuple[int, bytes]]:
    """Run a library under the sanitizers; return the return value and the output bytes of each run."""
    sizes = {
        "inputs": ", ".join(str(tensor.size_bytes) for tensor in library.inputs),
        "outputs": ", ".join(str(tensor.size_bytes) for tensor in library.outputs),
        "arena": library.arenas[0].size_bytes,
    }
    (folder / "main.c").write_text(_MAIN % sizes, encoding="utf-8")
    files = write_sources(library, folder)
    sanitize = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    run_tool(["gcc", *FLAGS, *sanitize, "-o", folder / "m", folder / "main.c", *files, "-lm"])
    input_bytes = b"".join(array.tobytes() for arrays in runs for array in arrays)
    # The program ends in the middle of a run.
    options = {"ASAN_OPTIONS": "detect_leaks=0"}
    completed = subprocess.run(
        [folder / "m"], input=input_bytes, env=options, capture_output=True, check=False, timeout=60
    )
    assert (completed.returncode, completed.stderr) == (0, b"")
    (output,) = library.outputs
    record = struct.Struct(f"<i{output.size_bytes}s")
    assert len(completed.stdout) == len(runs) * record.size
    return list(record.iter_unpack(completed.stdout))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_index_out_of_range_is_an_error(case: Case, tmp_path: Path) -> None:
    first, indices, *rest = case.inputs
    library = compile_model(case.model(), name="m")
    runs = [(first, index_array, *rest) for index_array in (indices, *hostile(case), indices)]
    good, *bad, repeated = run_library(library, tmp_path, runs)
    expected = case.golden(*case.inputs)
    assert good == repeated == (0, expected.tobytes())
    assert [status for status, _ in bad] == [INDEX_OUT_OF_RANGE] * len(bad)


INNER = {
    "gather elements": ("GatherElements", (ROWS, np.array([[0, 2], [1, 1], [0, 0], [2, 2]])), (4, 2), {"axis": 1}),
    "gather nd": ("GatherND", (ROWS, np.array([[3, 0], [1, 2]])), (2,), {}),
    "scatter nd": ("ScatterND", (ROWS, np.array([[0, 1], [2, 2]]), -ROWS[0, :2]), (4, 3), {}),
    "scatter elements": ("ScatterElements", (ROWS, np.array([[0, 2], [1, 1]]), -ROWS[:2, :2]), (4, 3), {"axis": 1}),
}


@pytest.mark.parametrize(("operator", "inputs", "shape", "options"), INNER.values(), ids=INNER)
def test_index_outside_its_dimension_is_an_error(
    operator: str, inputs: tuple[Array, ...], shape: tuple[int, ...], options: dict[str, Any], tmp_path: Path
) -> None:
    """A row has three elements: its fourth would be the first of the next row."""
    library = compile_model(onnx_model(operator, inputs, shape, **options), name="m")
    runs = []
    for index in (2, 3, 4, -4, -5, 1 << 40, -(1 << 62), (1 << 63) - 1):
        indices = inputs[1].copy()
        indices[0, 1] = index
        runs.append((inputs[0], indices, *inputs[2:]))
    (good, _), *bad = run_library(library, tmp_path, runs)
    assert (good, {status for status, _ in bad}) == (0, {INDEX_OUT_OF_RANGE})


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize(
    ("operator", "values"),
    [
        (lambda x, i, j: relax.op.index_tensor(x, [i, j]), ()),
        (lambda x, i, j, v: relax.op.index_put(x, (i, j), v), (-ROWS[0, :2],)),
        (lambda x, i, j, v: relax.op.index_put(x, (i, j), v, accumulate=True), (-ROWS[0, :2],)),
    ],
    ids=["index", "put", "add"],
)
def test_bad_index_among_several_is_an_error(
    operator: Callable[..., Any], values: tuple[Array, ...], kind: str, tmp_path: Path
) -> None:
    rows, columns = np.array([2, 1], kind), np.array([0, 2], kind)
    library = compile_model(relax_model(operator, (ROWS, rows, columns, *values)), name="m")
    # In 32 bits, the last row index times a row's three elements is the first row's third.
    wrong = [(row, 0) for row in (4, -5, 0x5555_5556)] + [(0, column) for column in (3, 8, -4, 1 << 30)]
    runs = [(ROWS, rows, columns, *values)]
    for row, column in wrong:
        runs.append((ROWS, np.array([row, 1], kind), np.array([column, 2], kind), *values))
    (good, _), *bad = run_library(library, tmp_path, runs)
    assert (good, [status for status, _ in bad]) == (0, [INDEX_OUT_OF_RANGE] * len(wrong))


@pytest.mark.parametrize(
    ("mode", "valid_index"), [("clip", lambda i: np.clip(i, 0, 3)), ("wrap", lambda i: i % 4)], ids=["clip", "wrap"]
)
def test_clip_and_wrap_accept_any_index(mode: str, valid_index: Callable[[Array], Array], tmp_path: Path) -> None:
    model = relax_model(lambda x, i: relax.op.take(x, i, axis=0, mode=mode), (ROWS, I64))
    index_arrays = [np.array(pair) for pair in ((4, -1), (-5, 1 << 40), (-(1 << 63), (1 << 63) - 1), (2, 1))]
    results = run_library(compile_model(model, name="m"), tmp_path, [(ROWS, indices) for indices in index_arrays])
    assert results == [(0, ROWS[valid_index(indices)].tobytes()) for indices in index_arrays]


def test_graph_executor_checks_indices(tmp_path: Path) -> None:
    case = CASES["gather"]
    library = compile_model(case.model(), name="m", executor="graph")
    good, bad = run_library(library, tmp_path, [case.inputs, (ROWS, np.array([4, 0]))])
    assert good == (0, case.golden(*case.inputs).tobytes())
    assert bad[0] == INDEX_OUT_OF_RANGE
    assert "M_INDEX_OUT_OF_RANGE (-16)" in library.sources["m.h"]


def test_operators_without_indices_have_no_check() -> None:
    for case in OPERATOR_CASES:
        if case.name in ("add_broadcast", "resize_nearest", "pad", "slice", "where", "argmax", "conv2d_int8"):
            text = "".join(compile_model(case.model(), name="m").sources.values())
            assert "OUT_OF_RANGE" not in text and "within_" not in text


def test_slice_with_a_start_from_an_input_is_refused() -> None:
    with pytest.raises(CompileError, match="not a tensor of known shape"):
        compile_model(onnx_model("Slice", (ROWS, np.array([1]), np.array([2])), (1, 3)))


@pytest.mark.parametrize("name", ["gather", "scatter nd"])
def test_unchecked_library_has_no_check(name: str, tmp_path: Path) -> None:
    operator, inputs, shape, options = ("Gather", (ROWS, I64), (2, 3), {}) if name == "gather" else INNER[name]
    model = onnx_model(operator, inputs, shape, **options)
    checked, unchecked_library = (
        compile_model(model, name="m", target=Target(unchecked=unchecked)) for unchecked in (False, True)
    )
    text = "".join(unchecked_library.sources.values())
    assert "M_INDEX_OUT_OF_RANGE" in checked.sources["m.h"]
    assert "OUT_OF_RANGE" not in text and "within_" not in text
    assert unchecked_library.target.fields["unchecked"] is True and "unchecked" not in checked.target.fields
    folders = [tmp_path / "checked", tmp_path / "trusting"]
    for folder in folders:
        folder.mkdir()
    checked_run, trusting_run = (
        run_library(library, folder, [inputs])
        for library, folder in zip((checked, unchecked_library), folders, strict=True)
    )
    assert checked_run == trusting_run
