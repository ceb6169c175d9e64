# SPDX-License-Identifier: Apache-2.0
"""Refusals of random, damaged TFLite, ONNX and PyTorch models have our words, a location and a hint."""

import dataclasses
import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_random
import pytest
import tflite_suite
from onnx_draw import NEWEST, OLDEST
from onnx_draw import Draw as OnnxDraw
from test_messages import FOREIGN, LOCATED
from tflite_draw import TYPES, Layer, Spec
from tflite_draw import Draw as TfliteDraw
from tflite_layers import LAYERS, operator_of

from utvm.compiler import Model, from_onnx, from_tflite, load
from utvm.compiler.build import build_library
from utvm.compiler.frontend import import_model
from utvm.errors import UtvmError

_EXTENTS = (-1, 0, 1, 2, 3, 7, 1 << 20, (1 << 31) - 1)
_NUMBERS = (-(1 << 31), -2, -1, 0, 1, 2, 3, 5, 7, 1 << 20, (1 << 31) - 1)


def _wrong_spec(spec: Spec | None, random: np.random.Generator) -> Spec | None:
    """A tensor with one changed property, or None."""
    if spec is None:
        return Spec((1,), "float32")
    shape = spec.shape
    index, extent = int(random.integers(max(len(shape), 1))), int(random.choice(_EXTENTS))
    changes: list[dict[str, Any] | None] = [
        {"dtype": str(random.choice([*TYPES, "float64", "complex64"])), "data": None},
        {"shape": (*shape[:index], extent, *shape[index + 1 :]), "data": None},
        {"shape": (*shape, 2) if random.integers(2) else shape[1:], "data": None},
        {"scale": [None, 0.0, 1e-30, float("inf"), [0.5, 0.25]][random.integers(5)]},
        {"axis": int(random.integers(-1, 5))},
        {"data": None if spec.data is not None else int(random.integers(-2, 9))},
        {"variable": True, "data": None},
        None,
    ]
    change = changes[random.integers(len(changes))]
    return None if change is None else dataclasses.replace(spec, **change)


def tflite_model(seed: int) -> Model:
    random = np.random.default_rng([1, seed])
    names = tflite_suite.layers()
    row, _, dtype = names[seed * 7 % len(names)].rpartition("/")
    layer = LAYERS[row][0](TfliteDraw(f"{row}/{dtype}/{seed}", dtype))
    operator, inputs, outputs, options = operator_of(row), [*layer.inputs], [*layer.outputs], dict(layer.options)
    for _ in range(int(random.integers(1, 3))):
        match random.choice(["input", "input", "output", "option", "operator", "more"]):
            case "input":
                index = int(random.integers(len(inputs)))
                inputs[index] = _wrong_spec(inputs[index], random)
            case "output":
                index = int(random.integers(len(outputs)))
                outputs[index] = _wrong_spec(outputs[index], random) or outputs[index]
            case "option" if options:
                key = str(random.choice(list(options)))
                options[key] = int(random.choice(_NUMBERS)) if isinstance(options[key], int) else options[key]
            case "operator":
                operator, options = operator_of(names[random.integers(len(names))].rpartition("/")[0]), {}
            case "more":
                inputs = inputs[:-1] if random.integers(2) and len(inputs) > 1 else [*inputs, inputs[0]]
    try:
        content = Layer(inputs, outputs, options).content(operator)
    except (OverflowError, ValueError, TypeError, KeyError, RuntimeError, struct.error):  # Not writable.
        return tflite_model(seed + 100_003)
    return from_tflite(content, "drawn")


def onnx_model(seed: int) -> Model:
    random = np.random.default_rng([2, seed])
    names = list(onnx_random.OPERATORS)
    operator = names[seed * 7 % len(names)]
    draw = OnnxDraw(int(random.choice(onnx_random.definitions(operator)[-1])), random)
    onnx_random.OPERATORS[operator](draw)
    proto = draw.finish("drawn")
    node = proto.graph.node[random.integers(len(proto.graph.node))]
    for _ in range(int(random.integers(1, 3))):
        match random.choice(["attribute", "edge", "operator", "shape", "type", "opset", "constant", "less"]):
            case "attribute" if node.attribute:
                attribute = node.attribute[random.integers(len(node.attribute))]
                if attribute.ints:
                    attribute.ints[random.integers(len(attribute.ints))] = int(random.choice(_NUMBERS))
                else:
                    attribute.i = int(random.choice(_NUMBERS))
            case "edge" if node.input:
                node.input[random.integers(len(node.input))] = str(
                    random.choice([*draw.input_values, *draw.stored, "z"])
                )
            case "operator":
                node.op_type = str(random.choice(sorted({schema.name for schema in onnx.defs.get_all_schemas()})))
            case "shape" if proto.graph.input:
                dims = proto.graph.input[0].type.tensor_type.shape.dim
                if dims:
                    dims[random.integers(len(dims))].dim_value = int(random.choice(_EXTENTS))
            case "type" if proto.graph.input:
                proto.graph.input[0].type.tensor_type.elem_type = int(random.integers(0, 24))
            case "opset":
                proto.opset_import[0].version = int(random.integers(OLDEST, NEWEST))
            case "constant" if proto.graph.initializer:
                stored = proto.graph.initializer[random.integers(len(proto.graph.initializer))]
                numbers = np.array([random.choice(_NUMBERS) for _ in range(random.integers(4))])
                stored.CopyFrom(onnx.numpy_helper.from_array(numbers, stored.name))
            case "less" if node.input:
                del node.input[-1]
    return from_onnx(proto.SerializeToString(), "drawn")


def fault(draw: Callable[[int], Model], seed: int, *, whole: bool) -> str:
    """Fault of a random model's refusal; empty if it compiles or the refusal is correct."""
    try:
        model = draw(seed)
        import_model(model)
        if whole:
            build_library(model, "drawn")
    except UtvmError as error:
        text = f"{error.message} / {error.hint}"
        prefix = "TFLite model drawn" if draw is tflite_model else "ONNX model drawn"
        rules = {
            "foreign": not FOREIGN.search(text),
            "no place": LOCATED.search(error.message) is not None,
            "no hint": bool(error.hint),
            "no file": error.message.startswith(prefix),
        }
        broken = ", ".join(name for name, holds in rules.items() if not holds)
        return broken and f"{draw.__name__} {seed}: {broken}: {text}"
    except Exception as error:
        return f"{draw.__name__} {seed}: internal error {error!r}"
    return ""


@pytest.mark.parametrize("draw", [tflite_model, onnx_model])
def test_refusals_of_random_models_are_clear(draw: Callable[[int], Model]) -> None:
    faults = [fault(draw, seed, whole=False) for seed in range(40)]
    assert not any(faults), "\n".join(filter(None, faults))


@pytest.mark.nightly
@pytest.mark.parametrize("draw", [tflite_model, onnx_model])
@pytest.mark.parametrize("part", range(10))
def test_refusals_of_many_random_models_are_clear(draw: Callable[[int], Model], part: int) -> None:
    faults = [fault(draw, seed, whole=True) for seed in range(part * 100, part * 100 + 100)]
    assert not any(faults), "\n".join(filter(None, faults))


def torch_archive(seed: int) -> bytes:
    """An archive of torch.export.save with missing, exchanged, truncated or damaged members."""
    random = np.random.default_rng(seed)
    node = {"target": "torch.ops.aten.relu.default", "inputs": [], "outputs": [{"as_tensor": {"name": "relu"}}]}
    program = {
        "graph_module": {"graph": {"nodes": [node], "inputs": [], "outputs": []}},
        "schema_version": {"major": 8},
    }
    members = {
        "m/archive_format": b"pt2",
        "m/archive_version": b"0",
        "m/byteorder": b"little",
        "m/models/model.json": json.dumps(program).encode(),
        "m/data/weights/model.pt": b"PK\x05\x06" + bytes(18),
        "m/version": b"3\n",
    }
    for _ in range(random.integers(4)):
        name = str(random.choice(list(members)))
        content = bytearray(members.pop(name))
        match random.integers(4):
            case 0 if content:
                content[random.integers(len(content))] ^= 1 << random.integers(8)
            case 1:
                del content[random.integers(len(content) + 1) :]
            case 2:
                name = name.replace("m/", str(random.choice(["../", "", "/", "m/" * 40])))
            case 3:
                continue
        members[name] = bytes(content)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    content_of_archive = bytearray(stream.getvalue())
    for _ in range(random.integers(3)):
        content_of_archive[random.integers(len(content_of_archive))] = random.integers(256)
    return bytes(
        content_of_archive[: random.integers(len(content_of_archive))] if random.random() < 0.2 else content_of_archive
    )


@pytest.mark.parametrize("part", range(2))
def test_refusals_of_damaged_archives_are_clear(part: int, tmp_path: Path) -> None:
    """With and without PyTorch, the message names the file and has a hint."""
    path = tmp_path / "drawn.pt2"
    for seed in range(part * 150, part * 150 + 150):
        path.write_bytes(torch_archive(seed))
        with pytest.raises(UtvmError) as caught:
            load(path, run_python=bool(seed % 2))
        text = f"{seed}: {caught.value}"
        assert caught.value.message.startswith(f"{path}: is ") and caught.value.hint, text
        assert not FOREIGN.search(text) and "zip" not in text.lower() and "\n" not in caught.value.message, text
