# SPDX-License-Identifier: Apache-2.0
"""Convolutions that are computed by rows need less memory, and equal TensorFlow Lite Micro, bit for bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from convolutions import DSP, DUAL, MVE, NEON
from host_library import Camera, HostLibrary
from package_user import build_and_run, unpack

from models.tflite_reference import tflite_micro
from models.tflite_writer import Builder
from utvm import boards, firmware
from utvm.compiler import Library, Target, compile_model, from_tflite
from utvm.compiler.package.archive import package_library
from utvm.compiler.target import ANY, Goal
from utvm.drivers import attach
from utvm.errors import CompileError
from utvm.firmware.stack import measure_stack
from utvm.session import HostDriven

_SCALE = 0.02
_KINDS = ("int8", "uint8", "float32", "uint8 rescaled", "int8 rescaled")
_TARGETS = {"plain": ANY, "dsp": DSP, "dual": DUAL, "mve": MVE, "neon": NEON}


class _Network:
    """Convolutions on tall images; the image shrinks, so the first tensors are the largest."""

    def __init__(self, seed: int, shape: tuple[int, int, int] = (0, 0, 0)) -> None:
        self.random = np.random.default_rng(seed)
        self.builder = Builder()
        drawn = (self.random.integers(17, 40), 4 * self.random.integers(2, 7), 4 * self.random.integers(1, 4))
        self.shape = (1, *(shape if any(shape) else (int(size) for size in drawn)))
        self.count = 0
        self.last = self.input = self._tensor(self.shape)
        self.input_shape, self.dtype = self.shape, "int8"

    def _tensor(self, shape: tuple[int, ...]) -> str:
        self.count += 1
        self.zero = int(self.random.integers(-128, 60))
        return self.builder.tensor(f"t{self.count}", shape, "int8", scale=_SCALE, zero_point=self.zero)

    def _append(self, operator: str, shape: tuple[int, ...], *operands: str, **options: Any) -> None:
        result = self._tensor(shape)
        self.builder.operator(operator, [self.last, *operands], [result], fused_activation_function="NONE", **options)
        self.last, self.shape = result, shape

    def convolve(
        self, outputs: int, extent: int = 3, *, stride: int = 1, dilation: int = 1, depthwise: bool = False
    ) -> None:
        _, height, width, channels = self.shape
        shape = (1, -(-height // stride), -(-width // stride), channels if depthwise else outputs)
        axis, kernel = (3, (1, extent, extent, channels)) if depthwise else (0, (outputs, extent, extent, channels))
        weights = self.random.integers(-127, 128, kernel).astype(np.int8)
        taps = extent**2 * (1 if depthwise else channels)
        scales = (self.random.uniform(0.7, 1.3, shape[3]) / (73 * taps**0.5)).astype(np.float32)
        bias = self.random.integers(-3000, 3000, shape[3]).astype(np.int32)
        self.count += 1
        self._append(
            "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D",
            shape,
            self.builder.tensor(f"w{self.count}", kernel, "int8", weights, scale=scales, axis=axis),
            self.builder.tensor(f"b{self.count}", bias.shape, "int32", bias, scale=np.float32(_SCALE) * scales),
            padding="SAME",
            stride_h=stride,
            stride_w=stride,
            dilation_h_factor=dilation,
            dilation_w_factor=dilation,
            **({"depth_multiplier": 1} if depthwise else {}),
        )

    def quantise(self, kind: str) -> None:
        """Take an input of another kind, which the first operator turns into the int8 image."""
        if kind == "int8":
            return
        self.input, (self.dtype, *rescaled) = "front", kind.split()
        scale, zero = (0.013, 3) if rescaled else (_SCALE, self.zero)
        zero += 128 * (self.dtype == "uint8")
        quantity: dict[str, Any] = {} if self.dtype == "float32" else {"scale": scale, "zero_point": zero}
        self.builder.tensor(self.input, self.shape, self.dtype, **quantity)
        self.builder.operator("QUANTIZE", [self.input], [self.last])

    def sample(self, generator: np.random.Generator) -> npt.NDArray[Any]:
        if self.dtype == "float32":
            return generator.normal(0, 60 * _SCALE, self.input_shape).astype(np.float32)
        limits = np.iinfo(self.dtype)
        return generator.integers(limits.min, limits.max + 1, self.input_shape).astype(self.dtype)

    def reshape(self, shape: tuple[int, ...]) -> None:
        """Read the last result in another shape."""
        self.count += 1
        quantity = {"scale": _SCALE, "zero_point": self.zero}
        name = self.builder.tensor(f"r{self.count}", shape, "int8", **quantity)
        target = self.builder.tensor(f"s{self.count}", (4,), "int32", np.array(shape, np.int32))
        self.builder.operator("RESHAPE", [self.last, target], [name])
        self.last, self.shape = name, shape

    def activate(self, operator: str) -> None:
        result = self._tensor(self.shape)
        self.builder.operator(operator, [self.last], [result])
        self.last = result

    def residual(self) -> None:
        """Add a convolution, and its operand to it."""
        before = self.last
        self.convolve(self.shape[3], int(self.random.choice([1, 3])))
        self._append("ADD", self.shape, before)

    def draw(self) -> None:
        kind = self.random.choice(["pointwise", "spatial", "depthwise", "wide", "dilated", "shrinking", "residual"])
        outputs = 4 * int(self.random.integers(1, 7))
        if kind == "residual":
            self.residual()
        elif kind in ("depthwise", "wide"):
            extent = 3 if kind == "depthwise" else 5
            self.convolve(0, extent, stride=int(self.random.integers(1, 3)), depthwise=True)
        elif kind == "shrinking":
            self.convolve(outputs, int(self.random.choice([1, 3])), stride=2)
        else:
            extent = 1 if kind == "pointwise" else 3
            self.convolve(outputs, extent, dilation=2 if kind == "dilated" else 1)

    def content(self) -> bytes:
        return self.builder.finish([self.input], [self.last])


def _compile(network: _Network, folder: Path, target: Target) -> tuple[Library, bool]:
    """Compile a network and compare it with the reference kernels; return whether layers are computed by rows."""
    content = network.content()
    library = compile_model(from_tflite(content, "drawn"), target=target)
    compiled = HostLibrary(library, folder, ("-O1", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"))
    generator = np.random.default_rng(3)
    samples = [[network.sample(generator)] for _ in range(2)]
    for sample, (expected,) in zip(samples, tflite_micro(content, samples), strict=True):
        np.testing.assert_array_equal(compiled(*sample)[0], expected)
        assert len(np.unique(expected)) > 5
    return library, any(call.kind.endswith("by rows") for call in library.calls)


def _target(name: str, goal: Goal) -> Target:
    return Target(extensions=_TARGETS[name].extensions, goal=goal)


@pytest.mark.slow
@pytest.mark.parametrize("name", _TARGETS)
@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=() if first < 4 else pytest.mark.nightly) for first in range(0, 80, 4)]
)
def test_random_networks_equal_the_reference(first: int, name: str, tmp_path: Path) -> None:
    divided = 0
    for seed in range(first, first + 4):
        network = _Network(seed)
        network.convolve(24, int(network.random.choice([1, 3])))
        for _ in range(int(network.random.integers(1, 6))):
            network.draw()
        network.convolve(4, 3, stride=2)
        folder = tmp_path / str(seed)
        folder.mkdir()
        divided += _compile(network, folder, _target(name, "balance" if seed % 2 else "ram"))[1]
    assert divided


def test_a_large_tensor_between_two_small_ones_is_never_whole(tmp_path: Path) -> None:
    network = _Network(1, (32, 32, 4))
    network.convolve(24, 1)
    network.convolve(0, 3, stride=2, depthwise=True)
    network.convolve(4, 1)
    library, divided = _compile(network, tmp_path, DSP)
    assert divided
    assert library.arena_bytes < 12_000 < 32 * 32 * 24


def test_a_residual_pair_needs_one_tensor_and_a_few_rows(tmp_path: Path) -> None:
    network = _Network(1, (32, 32, 8))
    network.residual()
    network.convolve(8)
    network.residual()
    library, _ = _compile(network, tmp_path, _target("plain", "ram"))
    assert library.arena_bytes < 1.4 * 32 * 32 * 8


@pytest.mark.parametrize("input_rows", [False, True])
def test_a_tensor_read_in_another_shape_is_whole(input_rows: bool, tmp_path: Path) -> None:
    network = _Network(1, (32, 16, 8))
    network.convolve(24, 1)
    network.reshape((1, 16, 32, 24))
    network.convolve(4, 3, stride=2)
    _compile(network, tmp_path, replace(_target("plain", "ram"), input_rows=input_rows))


def test_speed_computes_layer_by_layer(tmp_path: Path) -> None:
    network = _Network(1, (32, 32, 4))
    network.convolve(24, 1)
    network.convolve(4)
    assert not _compile(network, tmp_path, _target("dsp", "speed"))[1]


def _shrinking(seed: int, kind: str = "int8") -> _Network:
    """A network whose input is its largest tensor."""
    network = _Network(seed, (32, 32, 4))
    network.quantise(kind)
    network.convolve(8, 3, stride=2)
    network.convolve(0, 3, depthwise=True)
    network.convolve(8, 1)
    network.convolve(4, 3, stride=2)
    return network


@pytest.mark.slow
@pytest.mark.parametrize("name", _TARGETS)
@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=() if first < 4 else pytest.mark.nightly) for first in range(0, 40, 4)]
)
def test_networks_with_rows_as_input_equal_the_reference(first: int, name: str, tmp_path: Path) -> None:
    goals: tuple[Goal, ...] = ("balance", "ram", "speed", "flash")
    for seed, goal in zip(range(first, first + 4), goals, strict=True):
        network = _Network(1000 + seed)
        network.quantise(_KINDS[(seed + list(_TARGETS).index(name)) % len(_KINDS)])
        network.convolve(8, 3, stride=int(network.random.integers(1, 3)))
        for _ in range(int(network.random.integers(1, 6))):
            network.draw()
        folder = tmp_path / str(seed)
        folder.mkdir()
        library, _ = _compile(network, folder, replace(_target(name, goal), input_rows=True))
        assert library.takes_rows
        assert "input" not in {block.kind for block in library.blocks}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if (name, kind) == ("plain", "uint8") else pytest.mark.slow)
        for name, kind in (*((name, "int8") for name in _TARGETS), *(("plain", kind) for kind in _KINDS[1:]))
    ],
)
def test_an_input_by_rows_is_never_whole(name: str, kind: str, tmp_path: Path) -> None:
    network = _shrinking(3, kind)
    library, _ = _compile(network, tmp_path, replace(_target(name, "ram"), input_rows=True))
    whole = compile_model(from_tflite(network.content(), "whole"), target=_target(name, "ram"))
    assert library.arena_bytes < 32 * 32 * 4 <= whole.inputs[0].size_bytes <= whole.arena_bytes


def test_speed_hands_rows_to_the_first_layer_only(tmp_path: Path) -> None:
    library, _ = _compile(_shrinking(3, "uint8"), tmp_path, Target(goal="speed", input_rows=True))
    assert [call.kind.endswith("by rows") for call in library.calls] == [True, False, False, False]
    assert library.arena_bytes < 32 * 32 * 4 + 16 * 16 * 8


def test_a_function_of_one_number_between_convolutions_runs_by_rows(tmp_path: Path) -> None:
    network = _Network(1, (32, 32, 4))
    network.convolve(24, 1)
    network.activate("HARD_SWISH")
    network.convolve(4, 3, stride=2)
    library, _ = _compile(network, tmp_path, _target("plain", "ram"))
    assert library.arena_bytes < 12_000 < 32 * 32 * 24


def test_a_row_that_cannot_be_read_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = compile_model(from_tflite(_shrinking(3).content(), "drawn"), target=Target(input_rows=True))
    compiled = HostLibrary(library, tmp_path)
    monkeypatch.setattr(Camera, "fails_at", 9)
    compiled(np.zeros((1, 32, 32, 4), np.int8))  # It checks that the run returns the camera's code.


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("int8", marks=pytest.mark.nightly), "uint8", "float32"])
def test_a_package_hands_over_rows(kind: str, tmp_path: Path) -> None:
    network = _shrinking(3, kind)
    model = from_tflite(network.content(), "drawn")
    library = compile_model(model, target=Target(input_rows=True))
    sample, expected = _sample(network)
    package = unpack(package_library(library, tmp_path / "drawn.tar", model=model, example=[sample]), tmp_path / "user")
    assert list(map(int, build_and_run(package, "gcc", tmp_path).split())) == expected.ravel().tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [("stm32f746", "uint8"), ("mps3-an547", "float32")])
def test_a_board_hands_over_rows(name: str, kind: str, tmp_path: Path) -> None:
    """Rows of windows move by memmove, or by vectors."""
    board, network = boards.load(name), _shrinking(3, kind)
    model = from_tflite(network.content(), "drawn")
    image = firmware.build(board, [compile_model(model, target=replace(board.target, input_rows=True))])
    sample, expected = _sample(network)
    with attach(board, "virtual", log_directory=tmp_path) as connection, HostDriven(connection, image) as session:
        for _ in range(2):
            np.testing.assert_array_equal(session.run("drawn", [sample]).outputs[0], expected)
    assert measure_stack(image, "drawn_run", "drawn").bytes < 2000


def _sample(network: _Network) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return an input and its output."""
    sample = network.sample(np.random.default_rng(3))
    ((expected,),) = tflite_micro(network.content(), [[sample]])
    return sample, np.asarray(expected)


def test_inputs_that_cannot_come_by_rows_are_refused() -> None:
    def refusal(network: _Network, target: Target = ANY) -> str:
        with pytest.raises(CompileError) as caught:
            compile_model(from_tflite(network.content(), "drawn"), target=replace(target, input_rows=True))
        return caught.value.message

    twice = _Network(1, (16, 16, 4))
    twice.convolve(4, 1)
    twice._append("ADD", twice.shape, twice.input)
    twice._append("ADD", twice.shape, twice.input)
    assert "cannot be handed over" in refusal(twice)
    reshaped = _Network(1, (32, 16, 8))
    reshaped.reshape((1, 16, 32, 8))
    reshaped.convolve(8, 3, stride=2)
    assert "cannot be handed over" in refusal(reshaped)
    narrow = _Network(1, (16, 5, 1))
    narrow.convolve(4)
    assert "5 numbers are no multiple of 4" in refusal(narrow)
    pooled = _Network(1, (16, 16, 4))
    pooled._append("MAX_POOL_2D", pooled.shape, filter_height=2, filter_width=2, padding="SAME")
    pooled.convolve(4)
    assert "max_pool2d_int8 reads the whole image" in refusal(pooled)
    with pytest.raises(CompileError, match="only generated calls"):
        compile_model(from_tflite(_shrinking(1).content(), "drawn"), target=Target(input_rows=True), executor="graph")


@pytest.mark.slow
def test_speed_takes_the_memory_that_fast_forms_need(tmp_path: Path) -> None:
    """A plane of a channel would increase the working memory, so that others copy parts of rows."""
    network = _Network(1, (48, 48, 8))
    network.convolve(0, 3, depthwise=True)
    content = network.content()
    board = boards.load("nucleo-l4r5zi")
    runs, sizes = [], []
    goals: tuple[Goal, ...] = ("balance", "speed")
    for goal in goals:
        library = compile_model(from_tflite(content, "m"), target=replace(board.target, goal=goal, weights_in_ram=0))
        sizes.append(library.arena_bytes)
        (tmp_path / goal).mkdir()
        with (
            attach(board, "virtual", log_directory=tmp_path / goal) as connection,
            HostDriven(connection, firmware.build(board, [library])) as session,
        ):
            runs.append(session.run("m", [np.arange(48 * 48 * 8, dtype=np.int8).reshape(network.shape)]))
    assert runs[0].outputs[0].tobytes() == runs[1].outputs[0].tobytes()
    assert sizes[1] > sizes[0] and runs[1].count < runs[0].count
