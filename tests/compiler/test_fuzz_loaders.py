# SPDX-License-Identifier: Apache-2.0
"""Damaged TFLite files and Relax modules raise only errors of this project, in bounded time and memory."""

import contextlib
import json
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.tflite_writer import Builder
from utvm.compiler import from_tflite, load
from utvm.compiler.frontend import import_model
from utvm.errors import UtvmError

SECONDS = 30
"""A longer time for one input is a hang, also on a busy machine."""

BYTES = 12 << 30
"""Address space; TVM and LLVM reserve several gigabytes without using them."""


def small_model() -> bytes:
    """A valid int8 model of 2 kB, so that damage is in its structure and not in its weights."""
    builder = Builder()
    builder.tensor("x", (1, 6, 6, 2), "int8", scale=0.5, zero_point=-1)
    builder.tensor("w", (3, 3, 3, 2), "int8", np.arange(54) - 20, scale=[0.1, 0.2, 0.3], axis=0)
    builder.tensor("b", (3,), "int32", [1, 2, 3], scale=[0.05, 0.1, 0.15], axis=0)
    builder.tensor("c", (1, 3, 3, 3), "int8", scale=0.5)
    builder.tensor("shape", (2,), "int32", [1, 27])
    builder.tensor("r", (1, 27), "int8", scale=0.5)
    builder.tensor("v", (4, 27), "int8", np.arange(108) - 50, scale=0.1)
    builder.tensor("d", (1, 4), "int8", scale=0.5)
    builder.tensor("y", (1, 4), "int8", scale=1 / 256, zero_point=-128)
    builder.operator("CONV_2D", ["x", "w", "b"], ["c"], stride_w=2, stride_h=2, padding="SAME")
    builder.operator("RESHAPE", ["c", "shape"], ["r"], new_shape=[1, 27])
    builder.operator("FULLY_CONNECTED", ["r", "v", None], ["d"], fused_activation_function="RELU")
    builder.operator("SOFTMAX", ["d"], ["y"])
    return builder.finish(["x"], ["y"])


SMALL = small_model()


@pytest.fixture(autouse=True, scope="module")
def bounded_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def bounded_time() -> Iterator[None]:
    def hang(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Change bytes, or integers at multiples of four, where the format has offsets, lengths and shapes."""
    result = bytearray(SMALL)
    for _ in range(draw(st.integers(1, 4))):
        match draw(st.sampled_from(["flip", "set", "number", "copy", "cut"])):
            case "flip":
                result[draw(st.integers(0, len(result) - 1))] ^= 1 << draw(st.integers(0, 7))
            case "set":
                result[draw(st.integers(0, len(result) - 1))] = draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
            case "number" if len(result) >= 8:
                offset = 4 * draw(st.integers(0, len(result) // 4 - 1))
                number = draw(st.sampled_from([-(1 << 31), -1, 0, 1, 2, 4, 1 << 16, 1 << 20, (1 << 31) - 1]))
                result[offset : offset + 4] = number.to_bytes(4, "little", signed=True)
            case "copy" if len(result) >= 8:
                source, target = (4 * draw(st.integers(0, len(result) // 4 - 1)) for _ in range(2))
                result[target : target + 4] = result[source : source + 4]
            case "cut":
                del result[max(draw(st.integers(1, len(result))), 1) :]
    return bytes(result)


@st.composite
def random_file(draw: st.DrawFn) -> bytes:
    """A well-formed file with operators and tensors that may not fit each other."""
    builder = Builder()
    extents = st.sampled_from([-1, 0, 1, 2, 3, 6, 1 << 20, (1 << 31) - 1])
    names = [f"t{number}" for number in range(draw(st.integers(2, 6)))]
    for name in names:
        dtype = draw(st.sampled_from(["int8", "uint8", "int16", "int32", "int64", "float32", "bool"]))
        shape = draw(st.lists(extents, max_size=5))
        stored = draw(st.booleans()) and all(0 <= extent < 7 for extent in shape)
        scale = draw(st.sampled_from([None, 0.0, 0.5, float("inf"), [0.5, 0.25]]))
        builder.tensor(name, shape, dtype, 1 if stored else None, scale=scale, axis=draw(st.integers(-1, 4)))
    operators = ["ADD", "CONV_2D", "MAX_POOL_2D", "RESHAPE", "CONCATENATION", "SOFTMAX", "PAD", "MEAN", "SPLIT"]
    for _ in range(draw(st.integers(1, 4))):
        inputs = draw(st.lists(st.sampled_from([*names, None]), min_size=1, max_size=3))
        outputs = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))
        builder.operator(draw(st.sampled_from(operators)), inputs, outputs)
    return builder.finish(names[:1], names[-1:])


def load_or_refuse(content: bytes, *, whole: bool = True) -> None:
    with bounded_time(), contextlib.suppress(UtvmError):
        model = from_tflite(content, "damaged")
        if whole:
            import_model(model)


def test_undamaged_model_is_imported() -> None:
    assert import_model(from_tflite(SMALL, "whole")).output_names == ("y",)


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.one_of(damaged(), random_file()))
def test_damaged_tflite_is_refused(content: bytes) -> None:
    load_or_refuse(content)


@pytest.mark.nightly
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(damaged(), random_file()))
def test_damaged_tflite_is_refused_at_length(content: bytes) -> None:
    load_or_refuse(content)


def relax_json() -> str:
    """A small module in TVM's format."""
    from tvm import ir, relax

    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType([1, 4], "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            added = builder.emit(relax.op.add(data, relax.const(np.ones((1, 4), "float32"))))
            result = builder.emit_output(relax.op.nn.relu(added))
        builder.emit_func_output(result)
    return str(ir.save_json(builder.get()))


@st.composite
def altered(draw: st.DrawFn, text: str) -> bytes:
    """Change references, types and values of nodes."""
    document: dict[str, Any] = json.loads(text)
    nodes = document["nodes"]
    values = st.sampled_from([-1, 0, 1, len(nodes) - 1, len(nodes), 1 << 40, "x", None, [], {}, True])
    for _ in range(draw(st.integers(1, 3))):
        node = draw(st.sampled_from(nodes))
        data = node.get("data")
        if isinstance(data, dict) and data and draw(st.booleans()):
            data[draw(st.sampled_from(sorted(data)))] = draw(values)
        elif isinstance(data, list) and data and draw(st.booleans()):
            data[draw(st.integers(0, len(data) - 1))] = draw(values)
        elif draw(st.booleans()):
            node["type"] = draw(st.sampled_from(nodes))["type"]
        else:
            node["data"] = draw(values)
    return json.dumps(document).encode()


@pytest.mark.nightly
def test_damaged_relax_json_is_refused_at_length(tmp_path: Path) -> None:
    text = relax_json()

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(altered(text))
    def check(content: bytes) -> None:
        (tmp_path / "m.json").write_bytes(content)
        with contextlib.suppress(UtvmError):
            import_model(load(tmp_path / "m.json"))

    check()
