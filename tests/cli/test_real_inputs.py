# SPDX-License-Identifier: Apache-2.0
"""A quantised model with float inputs: inputs are quantised, and outputs dequantised."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import tflite
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from models.digits import quantize
from models.digits.data import held_out
from models.tflite_reference import tflite_micro
from tests.cli.running import inv

_PICTURE = held_out()[0][:1].transpose(0, 2, 3, 1)
_INTEGERS = quantize.quantized_images(held_out()[0][:1])


def _run(tmp_path: Path, input_file: Path, *words: str) -> tuple[int, str, npt.NDArray[Any] | None]:
    output = tmp_path / "y.npy"
    completed = inv(
        "model.run", "--model", quantize.MODEL, "--board=host", "--input", input_file, "--output", output, *words
    )
    return (
        completed.returncode,
        completed.stdout + completed.stderr,
        np.load(output) if completed.returncode == 0 else None,
    )


def _output_quantity() -> tuple[float, int]:
    """Scale and zero point of the output, from the file."""
    graph = tflite.Model.GetRootAs(quantize.MODEL.read_bytes(), 0).Subgraphs(0)
    quantization = graph.Tensors(graph.Outputs(0)).Quantization()
    return quantization.Scale(0), quantization.ZeroPoint(0)


@pytest.mark.slow
def test_float_and_integer_inputs(tmp_path: Path) -> None:
    (expected,) = tflite_micro(quantize.MODEL.read_bytes(), [[_INTEGERS]])[0]
    np.save(tmp_path / "real.npy", _PICTURE)
    np.save(tmp_path / "integers.npy", _INTEGERS)
    np.savetxt(tmp_path / "real.csv", _PICTURE.reshape(8, 8), delimiter=",")
    digests = set()
    for name in ("integers.npy", "real.npy", "real.csv"):
        code, printed, output = _run(tmp_path, tmp_path / name)
        assert code == 0, printed
        assert output is not None
        digests.add(next(line for line in printed.splitlines() if line.startswith("outputs_sha256")))
        if name.startswith("integers"):
            assert output.dtype == np.int8
            assert output.tobytes() == expected.tobytes()
        else:
            assert output.dtype == np.float32
            scale, zero = _output_quantity()
            assert np.allclose(output, scale * (expected.astype(np.float64) - zero), rtol=1e-6)
    assert len(digests) == 1  # the board's own


def _integer_model() -> onnx.ModelProto:
    """An ONNX model that halves int8 values; its nodes define the scale of the integers."""
    tensors = [helper.make_tensor_value_info(name, TensorProto.INT8, (1, 4)) for name in "xy"]
    constants = {"s": 0.5, "t": 0.25, "half": 0.5}
    scales = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()]
    zeros = [numpy_helper.from_array(np.array(value, np.int8), name) for name, value in {"z": -3, "o": 7}.items()]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"]),
        helper.make_node("Mul", ["real", "half"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "t", "o"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:], [*scales, *zeros])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.npy", "x.csv"])
def test_outer_onnx_nodes_define_the_scale(name: str, tmp_path: Path) -> None:
    model, input_file, output = tmp_path / "m.onnx", tmp_path / name, tmp_path / "y.npy"
    onnx.save(_integer_model(), model)
    reals = np.array([[-4, 0.5, 1, 30]], np.float32)
    np.save(input_file, reals) if name.endswith("npy") else np.savetxt(input_file, reals, delimiter=",")
    completed = inv("model.run", "--model", model, "--board=host", "--input", input_file, "--output", output)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    np.testing.assert_array_equal(np.load(output), np.array([[-2, 0.25, 0.5, 15]], np.float32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n", "the file has 2 numbers"),
        ("1,two\n", "is not rows of numbers"),
        (",".join(["nan"] * 64), "NaN or infinite"),
    ],
)
def test_invalid_input_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    code, printed, _ = _run(tmp_path, tmp_path / "x.csv")
    assert code == 2
    assert message in printed


@pytest.mark.slow
def test_picture_is_an_input_and_folder_is_samples(tmp_path: Path) -> None:
    """Held-out digits as pictures, scaled to the range of the training data."""
    bytes_ = np.rint(held_out()[0][:3, 0] / held_out()[0].max() * 255).astype(np.uint8)
    graph = tflite.Model.GetRootAs(quantize.MODEL.read_bytes(), 0).Subgraphs(0)
    quantity = graph.Tensors(graph.Inputs(0)).Quantization()
    reals = bytes_[:, np.newaxis, :, :, np.newaxis] / 255 * held_out()[0].max()
    integers = np.clip(np.rint(reals / quantity.Scale(0)) + quantity.ZeroPoint(0), -128, 127).astype(np.int8)
    expected = [outputs[0] for outputs in tflite_micro(quantize.MODEL.read_bytes(), [[sample] for sample in integers])]
    for number, pixels in enumerate(bytes_):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    scale = f"--set=scale=0..{held_out()[0].max():g}"
    code, printed, output = _run(tmp_path, tmp_path / "1.png", scale)
    assert code == 0, printed
    assert output is not None
    factor, zero = _output_quantity()
    assert np.allclose(output, factor * (expected[1].astype(np.float64) - zero), rtol=1e-6)
    completed = inv(
        "model.eval", quantize.MODEL, "--board=host", "--inputs", tmp_path, scale, "--json", tmp_path / "e.json"
    )
    assert completed.returncode == 0, completed.stderr
    samples = json.loads((tmp_path / "e.json").read_text())["samples"]
    assert [sample["prediction"] for sample in samples] == [int(logits.argmax()) for logits in expected]


def test_scale_is_for_pictures_only(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", _PICTURE)
    code, printed, _ = _run(tmp_path, tmp_path / "x.npy", "--set=scale=0..1")
    assert code == 2
    assert "--set scale is for pictures" in printed
