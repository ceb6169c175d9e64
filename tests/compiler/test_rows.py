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
        self.input_shape = self.shape

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

    def reshape(self, shape: tuple[int, ...]) -> None:
        """Read the last result in another shape."""
        self.count += 1
        quantity = {"scale": _SCALE, "zero_point": self.zero}
        name = self.builder.tensor(f"r{self.count}", shape, "int8", **quantity)
        target = self.builder.tensor(f"s{self.count}", (4,), "int32", np.array(shape, np.int32))
        self.builder.operator("RESHAPE", [self.last, target], [name])
        self.last, self.shape = name, shape

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
    samples = [[generator.integers(-128, 128, network.input_shape).astype(np.int8)] for _ in range(2)]
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


def _shrinking(seed: int) -> _Network:
    """A network whose input is its largest tensor."""
    network = _Network(seed, (32, 32, 4))
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
        network.convolve(8, 3, stride=int(network.random.integers(1, 3)))
        for _ in range(int(network.random.integers(1, 6))):
            network.draw()
        folder = tmp_path / str(seed)
        folder.mkdir()
        library, _ = _compile(network, folder, replace(_target(name, goal), input_rows=True))
        assert library.takes_rows
        assert "input" not in {block.kind for block in library.blocks}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "plain" else pytest.mark.slow) for name in _TARGETS]
)
def test_an_input_by_rows_is_never_whole(name: str, tmp_path: Path) -> None:
    network = _shrinking(3)
    library, _ = _compile(network, tmp_path, replace(_target(name, "ram"), input_rows=True))
    whole = compile_model(from_tflite(network.content(), "whole"), target=_target(name, "ram"))
    assert library.arena_bytes < 32 * 32 * 4 <= whole.arena_bytes


def test_a_row_that_cannot_be_read_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = compile_model(from_tflite(_shrinking(3).content(), "drawn"), target=Target(input_rows=True))
    compiled = HostLibrary(library, tmp_path)
    monkeypatch.setattr(Camera, "fails_at", 9)
    compiled(np.zeros((1, 32, 32, 4), np.int8))  # It checks that the run returns the camera's code.


@pytest.mark.slow
def test_a_package_hands_over_rows(tmp_path: Path) -> None:
    model = from_tflite(_shrinking(3).content(), "drawn")
    library = compile_model(model, target=Target(input_rows=True))
    sample, expected = _sample()
    package = unpack(package_library(library, tmp_path / "drawn.tar", model=model, example=[sample]), tmp_path / "user")
    assert list(map(int, build_and_run(package, "gcc", tmp_path).split())) == expected.ravel().tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stm32f746", "mps3-an547"])
def test_a_board_hands_over_rows(name: str, tmp_path: Path) -> None:
    """Rows of windows move by memmove, or by vectors."""
    board = boards.load(name)
    model = from_tflite(_shrinking(3).content(), "drawn")
    image = firmware.build(board, [compile_model(model, target=replace(board.target, input_rows=True))])
    sample, expected = _sample()
    with attach(board, "virtual", log_directory=tmp_path) as connection, HostDriven(connection, image) as session:
        for _ in range(2):
            np.testing.assert_array_equal(session.run("drawn", [sample]).outputs[0], expected)
    assert measure_stack(image, "drawn_run", "drawn").bytes < 2000


def _sample() -> tuple[npt.NDArray[np.int8], npt.NDArray[Any]]:
    """Return an input and the output of ``_shrinking(3)``."""
    sample = np.random.default_rng(3).integers(-128, 128, (1, 32, 32, 4)).astype(np.int8)
    ((expected,),) = tflite_micro(_shrinking(3).content(), [[sample]])
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
    assert "multiples of 4 bytes" in refusal(narrow)
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
