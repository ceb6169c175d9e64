# SPDX-License-Identifier: Apache-2.0
"""A model that is too large for a board is refused before it is compiled; one that fits is not."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hil_tests.int8_cases import INT8_CASES
from hil_tests.operator_cases import OPERATOR_CASES
from utvm import boards
from utvm.compiler import CompileOptions, Model, Target, from_onnx, from_relax, from_tflite
from utvm.compiler.build import build_library
from utvm.compiler.frontend import import_model, least_bytes
from utvm.errors import CompileError, DoesNotFitError
from utvm.firmware import compile_for
from utvm.paths import ROOT

Array = npt.NDArray[Any]

FLASH = 1024 * 1024
_WIDTH = 512
_NEED = _WIDTH * _WIDTH * 4
MESSAGE = rf"region flash of stm32f746 has {FLASH} bytes, the weights alone need {2 * _NEED} "


def products(weights: list[Array], *tail: onnx.NodeProto) -> bytes:
    """Return a model that multiplies a row by several matrices, followed by other nodes."""
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(len(weights))]
    nodes += tail or [helper.make_node("Relu", [f"x{len(weights)}"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, len(weights[0])])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, weights[-1].shape[1]])],
        [numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(weights)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(model.SerializeToString())


def random(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((_WIDTH, _WIDTH)).astype(np.float32)


def constant(name: str, array: Array) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))


def uncompilable(seed: int) -> Model:
    """Return a model that is too large for 1 MiB, and that the compiler would refuse for another reason."""
    from tvm import relax  # takes a second, and most cases do not need it

    builder = relax.BlockBuilder()
    row = relax.Var("x", relax.TensorType((1, _WIDTH), "float32"))
    with builder.function("main", [row]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(row, relax.const(random(seed))))
            product = builder.emit(relax.op.matmul(product, relax.const(random(seed + 1))))
            result = builder.emit_output(relax.op.sort(product))
        builder.emit_func_output(result)
    return from_relax(builder.get(), "large")


def test_oversized_weights_are_refused_before_compiling() -> None:
    model = uncompilable(1)
    with pytest.raises(DoesNotFitError, match=MESSAGE) as caught:
        compile_for(boards.load("stm32f746"), model)
    assert "large" in caught.value.message
    # The memory of a process has no fixed size.
    with pytest.raises(CompileError, match="without an implementation"):
        compile_for(boards.load("host"), model)


@pytest.mark.slow
def test_command_exits_with_code_2(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_bytes(uncompilable(1).content)
    completed = subprocess.run(
        [sys.executable, "-m", "invoke", "firmware.size", "--board", "stm32f746", "--model", tmp_path / "large.json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 2, completed.stdout + completed.stderr
    assert re.search(MESSAGE, " ".join(completed.stderr.split()))


def test_cli_and_api_compile_the_same() -> None:
    callers = [
        path.relative_to(ROOT / "utvm")
        for folder in ("cli", "hil", "session")
        for path in (ROOT / "utvm" / folder).rglob("*.py")
        if "compile_model(" in path.read_text(encoding="utf-8")
    ]
    # They compile libraries for packages and reports, without a board.
    assert set(callers) == {Path("cli/model_library.py"), Path("cli/model_quantize.py")}


def test_all_ram_counts_for_an_image_in_ram() -> None:
    model = from_onnx(products([random(1)[:, :200]]), "narrow")
    assert compile_for(boards.load("stm32f746"), model).weights_bytes == _WIDTH * 200 * 4
    with pytest.raises(DoesNotFitError, match=r"all RAM of stm32f746 has \d+ bytes, .* need 409600"):
        compile_for(boards.load("stm32f746"), model, CompileOptions(in_ram=True))


def test_cached_library_is_refused() -> None:
    model = from_onnx(products([random(3), random(4)]), "known")
    assert compile_for(boards.load("host"), model).weights_bytes == 2 * _NEED
    board = boards.load("stm32f746")
    with pytest.raises(DoesNotFitError, match=MESSAGE):
        compile_for(board, model)


class TestLowerBound:
    """Each of these models has more bytes of weights in its file than in its library."""

    @staticmethod
    def bound(content: bytes) -> int:
        return least_bytes(import_model(from_onnx(content, "model")).module, 0)

    def test_repeated_matrix(self) -> None:
        assert self.bound(products([random(1), random(1)])) == _NEED

    def test_matrix_and_its_transpose(self) -> None:
        assert self.bound(products([random(1), np.ascontiguousarray(random(1).T)])) == _NEED

    def test_unused_result(self) -> None:
        dead = helper.make_node("MatMul", ["x1", "w1"], ["x2"]), helper.make_node("Relu", ["x1"], ["y"])
        assert self.bound(products([random(1), random(2)], *dead[1:])) == _NEED

    def test_result_used_for_its_shape(self) -> None:
        shape = helper.make_node("Shape", ["x2"], ["shape"])
        ones = helper.make_node("Expand", ["x1", "shape"], ["y"])
        assert self.bound(products([random(1), random(2)], shape, ones)) == _NEED

    def test_product_of_constants(self) -> None:
        product = helper.make_node("MatMul", ["w0", "w1"], ["p"])
        row = helper.make_node("Slice", ["p", "low", "high"], ["row"])
        bounds = [constant(name, np.array([value])) for name, value in (("low", 1), ("high", 2))]
        total = helper.make_node("Add", ["x2", "row"], ["y"])
        assert self.bound(products([random(1), random(2)], product, *bounds, row, total)) == 2 * _NEED

    @pytest.mark.slow
    @pytest.mark.parametrize("extensions", [(), ("dsp",)])
    def test_no_library_stores_less_than_the_bound(self, extensions: tuple[str, ...]) -> None:
        models: list[Model] = [from_tflite(case.content(), "case") for case in INT8_CASES[::2]]
        if not extensions:
            models += [case.model() for case in OPERATOR_CASES if "conv" in case.name or "mat" in case.name]
        bounds = []
        for model in models:
            library = build_library(model, "case", Target(extensions=extensions))
            imported = import_model(model)
            bounds.append(least_bytes(imported.module, 0, imported.layers))
            assert bounds[-1] <= library.weights_bytes
        assert sum(bound > 0 for bound in bounds) > 5
