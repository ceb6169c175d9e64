# SPDX-License-Identifier: Apache-2.0
"""Our C printer against TVM's stock C backend, on the same lowered functions."""

from pathlib import Path

import numpy as np
import pytest
from host_library import HostLibrary
from stock_backend import with_stock_operators
from tvm import relax, s_tir, te, topi

from hil_tests.operator_cases import OPERATOR_CASES, OperatorCase
from utvm.compiler import Model, compile_model, from_relax, load, reference

DIGITS = Path(__file__).parents[2] / "models" / "digits" / "digits.onnx"
# gcc warns about the stock backend's code, so warnings are no errors here. It prints infinity in a way that no C
# compiler accepts.
LENIENT = ["-O1", "-std=gnu11", "-w", "-Dinff=__builtin_inff()"]


# These need the absolute value of a float, which the stock backend refuses.
REFUSED = ("abs", "cast_to_int8", "is_inf")
# This checks indices with a variable that the stock backend does not print.
CHECKED = "gather"


# This has a schedule of the int8 compiler with storage that the stock backend refuses; TensorFlow Lite Micro's
# reference kernels check it (test_integer_operators).
SCHEDULED = "max_pool_int8"
# This has a constant with nine digits; the stock backend prints seven.
SHORTENED = "gelu"
# Here a narrow sum or product is reused; the stock backend leaves it as wide as C's int.
WIDENED = ("wrap_then_compare_int8", "wrap_then_shift_uint8")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "case",
    [case for case in OPERATOR_CASES if case.name not in (*REFUSED, CHECKED, SCHEDULED, SHORTENED, *WIDENED)],
    ids=lambda case: case.name,
)
def test_operator_equals_the_stock_backend(case: OperatorCase, tmp_path: Path) -> None:
    compare(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conv2d_padding_bias", "softmax", "reduce_sum", "mul_int8"])
def test_some_operators_equal_the_stock_backend(name: str, tmp_path: Path) -> None:
    compare(next(case for case in OPERATOR_CASES if case.name == name), tmp_path)


def compare(case: OperatorCase, tmp_path: Path) -> None:
    model = case.model()
    library = compile_model(model)
    (tmp_path / "stock").mkdir()
    printed = HostLibrary(library, tmp_path)
    stock = HostLibrary(with_stock_operators(model, library), tmp_path / "stock", LENIENT)
    for printed_output, stock_output in zip(printed(*case.inputs), stock(*case.inputs), strict=True):
        assert printed_output.tobytes() == stock_output.tobytes()


@pytest.mark.slow
def test_digits_equals_the_stock_backend(tmp_path: Path) -> None:
    model = load(DIGITS)
    library = compile_model(model)
    (tmp_path / "stock").mkdir()
    printed = HostLibrary(library, tmp_path)
    stock = HostLibrary(with_stock_operators(model, library), tmp_path / "stock", LENIENT)
    generator = np.random.default_rng(0)
    for _ in range(20):
        image = generator.integers(0, 17, (1, 1, 8, 8)).astype(np.float32)
        assert printed(image)[0].tobytes() == stock(image)[0].tobytes()


def test_shortened_constants_of_the_stock_backend(tmp_path: Path) -> None:
    case = next(case for case in OPERATOR_CASES if case.name == SHORTENED)
    model = case.model()
    library = compile_model(model)
    (tmp_path / "stock").mkdir()
    (printed,) = HostLibrary(library, tmp_path)(*case.inputs)
    (stock,) = HostLibrary(with_stock_operators(model, library), tmp_path / "stock", LENIENT)(*case.inputs)
    (expected,) = reference(model)(case.inputs)
    assert printed.tobytes() == expected.tobytes()
    assert stock.tobytes() != expected.tobytes(), "TVM's C backend is mended: compare this case as well"


@pytest.mark.parametrize("name", WIDENED)
def test_wide_sums_of_the_stock_backend(name: str, tmp_path: Path) -> None:
    case = next(case for case in OPERATOR_CASES if case.name == name)
    model = case.model()
    library = compile_model(model)
    (tmp_path / "stock").mkdir()
    case.check(HostLibrary(library, tmp_path)(*case.inputs))
    stock = HostLibrary(with_stock_operators(model, library), tmp_path / "stock", LENIENT)
    with pytest.raises(AssertionError, match="Mismatched"):
        case.check(stock(*case.inputs))


def unrolled_max_pool() -> Model:
    """A 2 by 2 max-pool of a 4 by 4 image with the loops of its window unrolled."""
    image = te.placeholder((1, 1, 4, 4), "float32", name="image")
    pool = topi.nn.pool2d(image, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
    plan = s_tir.Schedule(te.create_prim_func([image, pool]))
    (block,) = plan.get_child_blocks(plan.get_sblock("root"))
    for loop in plan.get_loops(block)[-2:]:
        plan.unroll(loop)
    builder = relax.BlockBuilder()
    function = builder.add_func(plan.mod["main"].without_attr("global_symbol"), "unrolled_max_pool")
    x = relax.Var("x", relax.TensorType((1, 1, 4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            call = relax.call_tir(function, [x], relax.TensorType((1, 1, 2, 2), "float32"))
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return from_relax(builder.get(), "pool")


def test_wrong_max_of_the_stock_backend(tmp_path: Path) -> None:
    model = unrolled_max_pool()
    library = compile_model(model)
    image = np.random.default_rng(0).permutation(16).astype(np.float32).reshape(1, 1, 4, 4)
    expected = image.reshape(1, 1, 2, 2, 2, 2).max((3, 5))
    results = {}
    variants = {
        "ours": library,
        "stock": with_stock_operators(model, library, rewrite_max_min=False),
        "stock_rewritten": with_stock_operators(model, library),
    }
    for name, variant in variants.items():
        (tmp_path / name).mkdir()
        flags = [] if name == "ours" else LENIENT
        (results[name],) = HostLibrary(variant, tmp_path / name, flags)(image)
    np.testing.assert_array_equal(results["ours"], expected)
    np.testing.assert_array_equal(results["stock_rewritten"], expected)
    assert not np.array_equal(results["stock"], expected), "TVM's C backend is mended: the printer may go"
