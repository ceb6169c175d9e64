# SPDX-License-Identifier: Apache-2.0
"""VTA's operators against numpy, on three VTAs, with shapes that do and do not fill blocks."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from three_vtas import CONFIGURATIONS

from utvm import vta
from utvm.compiler.targets.vta import layout
from utvm.compiler.targets.vta.operators import Conv2d, Elementwise, Matmul, MaxPool, Requantise, Sums
from utvm.errors import CompileError, DoesNotFitError
from utvm.virtual.vta.simulator import STAGES

Array = npt.NDArray[Any]
ENVS = {name: vta.get_env(str(path)) for name, path in sorted(CONFIGURATIONS.items())}


@pytest.fixture(params=sorted(ENVS))
def env(request: pytest.FixtureRequest) -> vta.Env:
    return ENVS[request.param]


def run(env: vta.Env, operator: Any, inputs: list[Array], out: tuple[int, ...]) -> Array:
    """Run an operator with each stage ahead of the others; the outputs are equal."""
    module, device, model = (
        vta.build(operator.schedule(env), env),
        tvm.runtime.device("ext_dev", 0),
        vta.simulator(env),
    )
    (name,) = [str(function.attrs["global_symbol"]) for function in operator.schedule(env).mod.functions.values()]
    results = []
    for stage in STAGES:
        model.look_first_after(stage)
        output = tvm.runtime.tensor(np.full(out, 77, "int8"), device)
        module[name](*(tvm.runtime.tensor(array, device) for array in inputs), output)
        results.append(output.numpy())
    model.look_first_after(STAGES[0])
    assert all((result == results[0]).all() for result in results)
    return results[0]


def requantise(rounding: Requantise, total: Array) -> Array:
    half = 1 << rounding.shift - 1 if rounding.rounding and rounding.shift else 0
    return np.clip((total + half) >> rounding.shift, rounding.low, rounding.high).astype("int8")


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype("int8")


def check_matmul(env: vta.Env, operator: Matmul, seed: int = 1) -> None:
    x, w = numbers(seed, operator.rows, operator.inputs), numbers(seed + 1, operator.outputs, operator.inputs)
    bias = np.random.default_rng(seed).integers(-5000, 5000, operator.outputs).astype("int32")
    inputs = [layout.data(env, x), layout.weights(env, w), *([layout.bias(env, bias)] if operator.bias else [])]
    blocks = (inputs[0].shape[0], inputs[1].shape[0], env.BATCH, env.BLOCK_OUT)
    result = layout.unpack(run(env, operator, inputs, blocks), (operator.rows, operator.outputs))
    total = x.astype("int32") @ w.astype("int32").T + (bias if operator.bias else 0)
    assert (result == requantise(operator.requantise, total)).all()


def check_convolution(env: vta.Env, operator: Conv2d, seed: int = 1) -> None:
    x = numbers(seed, *operator.shape)
    w = numbers(seed + 1, operator.outputs, operator.shape[1], *operator.kernel)
    bias = np.random.default_rng(seed).integers(-5000, 5000, operator.outputs).astype("int32")
    inputs = [layout.data(env, x), layout.weights(env, w), *([layout.bias(env, bias)] if operator.bias else [])]
    height, width = operator.out_size
    blocks = (inputs[0].shape[0], inputs[1].shape[0], height, width, env.BATCH, env.BLOCK_OUT)
    result = layout.unpack(run(env, operator, inputs, blocks), (x.shape[0], operator.outputs, height, width))
    above, below, left, right = operator.padding
    padded = np.pad(x.astype("int32"), ((0, 0), (0, 0), (above, below), (left, right)))
    total = np.zeros((x.shape[0], operator.outputs, height, width), "int32")
    for dy in range(operator.kernel[0]):
        for dx in range(operator.kernel[1]):
            step = operator.stride
            window = padded[:, :, dy : dy + step * height : step, dx : dx + step * width : step]
            total += np.einsum("oc,nchw->nohw", w[:, :, dy, dx].astype("int32"), window[:, :, :height, :width])
    total += bias[:, None, None] if operator.bias else 0
    assert (result == requantise(operator.requantise, total)).all()


@pytest.mark.parametrize("bias", [False, True])
def test_convolution_sums_are_int32(env: vta.Env, bias: bool) -> None:
    operator = Conv2d((2, 20, 6, 5), 20, (3, 3), 1, (1, 1, 1, 1), Sums(), bias=bias)
    x, w = numbers(5, *operator.shape), numbers(6, operator.outputs, 20, 3, 3)
    bias_values = np.random.default_rng(5).integers(-(1 << 31), 1 << 31, operator.outputs).astype("int32")
    inputs = [layout.data(env, x), layout.weights(env, w), *([layout.bias(env, bias_values)] if bias else [])]
    blocks = (inputs[0].shape[0], inputs[1].shape[0], 6, 5, 4, env.BATCH, env.BLOCK_OUT)
    result = layout.unpack(layout.join_bytes(run(env, operator, inputs, blocks)), (2, 20, 6, 5))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    total = np.einsum("nchwyx,ocyx->nohw", windows.astype("int32"), w.astype("int32"))
    assert (result == total + (bias_values[:, None, None] if bias else 0)).all()


def test_matmul_sums_are_int32(env: vta.Env) -> None:
    x, w = np.full((3, 70), -128, "int8"), np.full((20, 70), 127, "int8")
    inputs = [layout.data(env, x), layout.weights(env, w)]
    blocks = (inputs[0].shape[0], inputs[1].shape[0], 4, env.BATCH, env.BLOCK_OUT)
    result = layout.join_bytes(run(env, Matmul(3, 70, 20, Sums()), inputs, blocks))
    assert (layout.unpack(result, (3, 20)) == -128 * 127 * 70).all()


def check_max_pool(env: vta.Env, operator: MaxPool) -> None:
    x = numbers(4, *operator.shape)
    height, width = operator.out_size
    packed = layout.data(env, x)
    result = run(env, operator, [packed], (*packed.shape[:2], height, width, env.BATCH, env.BLOCK_OUT))
    above, below, left, right = operator.padding
    padded = np.pad(x, ((0, 0), (0, 0), (above, below), (left, right)), constant_values=-128)
    windows = np.lib.stride_tricks.sliding_window_view(padded, operator.window, (2, 3))
    expected = windows[:, :, :: operator.stride, :: operator.stride].max((4, 5))
    assert (layout.unpack(result, expected.shape) == expected).all()


@pytest.mark.parametrize(
    "operator",
    [
        Matmul(1, 16, 16, Requantise(8)),
        Matmul(5, 40, 33, Requantise(9, rounding=True, low=0), bias=True),
        Matmul(6, 64, 64, Requantise(8), overlapped=False, tile=(1, 2, 1)),
    ],
)
def test_matmul_equals_numpy(env: vta.Env, operator: Matmul) -> None:
    check_matmul(env, operator)


@pytest.mark.parametrize(
    "operator",
    [
        Conv2d((1, 3, 8, 8), 16, (3, 3), 1, (1, 1, 1, 1), Requantise(8), bias=True),
        Conv2d((2, 20, 9, 9), 20, (3, 3), 2, (0, 1, 0, 1), Requantise(9, rounding=True, low=0)),
        Conv2d((1, 16, 6, 5), 32, (1, 1), 2, (0, 0, 0, 0), Requantise(7)),
    ],
)
def test_convolution_equals_numpy(env: vta.Env, operator: Conv2d) -> None:
    check_convolution(env, operator)


@pytest.mark.parametrize(
    "operator",
    [
        MaxPool((1, 20, 8, 8), (2, 2), 2),
        MaxPool((2, 16, 7, 9), (3, 3), 2, (1, 1, 1, 1)),
        MaxPool((1, 16, 9, 8), (4, 2), 3, (3, 1, 0, 1)),
        MaxPool((1, 3, 56, 20), (3, 3), 2, (0, 1, 0, 1)),
    ],
)
def test_max_pool_equals_numpy(env: vta.Env, operator: MaxPool) -> None:
    check_max_pool(env, operator)


def check_elementwise(env: vta.Env, operator: Elementwise, seed: int = 1) -> None:
    a, b = (numbers(seed + number, operator.numbers).astype(operator.dtype) for number in (0, 1))
    packed = [layout.flat(env, array) for array in (a, b)]
    result = run(env, operator, packed, packed[0].shape).reshape(-1)[: operator.numbers]
    expected = {"add": np.add, "max": np.maximum, "min": np.minimum}[operator.operation]
    assert (result == requantise(operator.requantise, expected(a.astype("int32"), b.astype("int32")))).all()


@pytest.mark.parametrize("operation", ["add", "max", "min"])
@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_elementwise_equals_numpy(env: vta.Env, operation: Any, dtype: Any) -> None:
    check_elementwise(env, Elementwise(500, operation, dtype, Requantise(1, rounding=True)))


@pytest.mark.parametrize("shift", [15, 16, 23, 31])
def test_large_shifts_round_half_up(env: vta.Env, shift: int) -> None:
    a, b = np.random.default_rng(shift).integers(-(1 << 30), 1 << 30, (2, 60)).astype("int32")
    operator = Elementwise(60, "add", "int32", Requantise(shift, rounding=True))
    packed = [layout.flat(env, array) for array in (a, b)]
    result = run(env, operator, packed, packed[0].shape).reshape(-1)[:60]
    total = a.astype("int64") + b
    assert (result == np.clip((total + (1 << shift - 1)) >> shift, -128, 127)).all()


def test_distant_rows_are_loaded_separately() -> None:
    env = ENVS["vta_config"]
    check_convolution(env, Conv2d((1, 20, 257, 256), 3, (1, 1), requantise=Requantise(8)))


def test_parallel_loads_take_fewer_modelled_cycles() -> None:
    """The same bytes and products; only the dependencies differ."""
    env = ENVS["vta_config"]
    model = vta.simulator(env)
    statistics = []
    for overlapped in (False, True):
        model.clear()
        check_matmul(env, Matmul(16, 1024, 1024, Requantise(8), overlapped=overlapped, tile=(16, 16, 4)))
        statistics.append(model.statistics())
    serial, parallel = statistics
    assert {serial["gemm_counter"], parallel["gemm_counter"]} == {3 * 65536}
    assert serial["inp_load_nbytes"] == parallel["inp_load_nbytes"]
    assert parallel["modelled_cycles"] <= 0.70 * serial["modelled_cycles"]
    bound = max(parallel[f"modelled_{stage}_cycles"] for stage in STAGES)
    assert parallel["modelled_cycles"] <= 1.3 * bound


def test_operator_without_a_fitting_tile_is_refused() -> None:
    with pytest.raises(DoesNotFitError, match=r"fits in no tiles; the smallest need \d+ of INP's 512"):
        Conv2d((1, 8, 30, 300), 8, (3, 3)).schedule(ENVS["small"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Requantise(32), "a shift of 32"),
        (lambda: Requantise(low=-129), "results are int8"),
        (lambda: Conv2d((1, 1, 2, 2), 1, (3, 3)), "does not fit into"),
        (lambda: Conv2d((1, 1, 8, 8), 1, (3, 3), padding=(3, 0, 0, 0)), "padding of 3 is not below"),
        (lambda: MaxPool((1, 1, 2, 2), (3, 3), 1), "does not fit into"),
        (lambda: Conv2d((1, 1, 8, 8), 1, (3, 3), 0), "whole numbers from 1 on, not 0"),
        (lambda: MaxPool((1, 1, 8, 8), (2, 2), -1), "whole numbers from 1 on, not -1"),
        (lambda: Matmul(4, 0, 4), "whole numbers from 1 on, not 0"),
        (lambda: Elementwise(8, "mul"), "there is no mul of int32"),
        (lambda: Requantise(1.5), "a shift of 1.5"),
        (
            lambda: Matmul(16, 64, 64, tile=(3, 5, 7)).schedule(ENVS["vta_config"]),
            r"a tile of \(3, 5, 7\) does not divide \(16, 4, 4\)",
        ),
        (lambda: MaxPool((1, 1, 8, 8), (2, 2), 2, (0, 0, 0, 2)), "padding of 2 is not below the window's 2"),
    ],
)
def test_invalid_operator_is_refused(make: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        make()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 40))])
def test_generated_shapes(env: vta.Env, seed: int) -> None:
    random = np.random.default_rng(seed)
    rounding = Requantise(int(random.integers(0, 14)), bool(random.integers(2)), int(random.integers(-128, 1)))
    draw = lambda low, high: int(random.integers(low, high + 1))  # noqa: E731
    check_matmul(
        env, Matmul(draw(1, 20), draw(1, 100), draw(1, 100), rounding, bool(draw(0, 1)), bool(draw(0, 1))), seed
    )
    kernel = (draw(1, 5), draw(1, 5))
    pads = tuple(draw(0, size - 1) for size in (kernel[0], kernel[0], kernel[1], kernel[1]))
    shape = (draw(1, 3), draw(1, 40), draw(5, 12), draw(5, 12))
    check_convolution(
        env, Conv2d(shape, draw(1, 40), kernel, draw(1, 3), pads, rounding, bool(draw(0, 1)), bool(draw(0, 1))), seed
    )
    window = (draw(1, 4), draw(1, 4))
    pads = tuple(draw(0, size - 1) for size in (window[0], window[0], window[1], window[1]))
    check_max_pool(env, MaxPool(shape, window, draw(1, 3), pads))
    operation, dtype = random.choice(["add", "max", "min"]), random.choice(["int8", "int32"])
    check_elementwise(env, Elementwise(draw(1, 3000), str(operation), str(dtype), rounding), seed)
