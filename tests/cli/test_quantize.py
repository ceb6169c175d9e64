# SPDX-License-Identifier: Apache-2.0
"""model.quantize: the result is accurate, small and in integers; usage errors are one message."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.cli.running import inv
from utvm import compiler
from utvm.compiler.read.evaluators import definition, runtime
from utvm.errors import ConfigError
from utvm.paths import ROOT
from utvm.quantize import CALIBRATIONS, costs, model_outputs, quantize

DIGITS = ROOT / "models" / "digits" / "digits.onnx"
SAMPLES = ROOT / "models" / "digits" / "samples.npz"


@pytest.mark.slow
def test_digits_runs_in_integers_with_its_accuracy(tmp_path: Path) -> None:
    written, results = tmp_path / "small.onnx", tmp_path / "results.json"
    completed = inv("model.quantize", DIGITS, "--samples", SAMPLES, "--output", written, "--json", results)
    assert completed.returncode == 0, completed.stderr
    figures = json.loads(results.read_text())
    assert figures["accuracy_before"] == 0.99
    assert figures["accuracy_after"] >= 0.97
    assert "accuracy on 100 samples: 99.0% before" in completed.stdout
    layers = {layer["tensor"]: layer["snr_db"] for layer in figures["layers"]}
    assert list(layers)[-1] == "logits"
    assert all(snr_db > 25 for snr_db in layers.values())
    # The page of the model has the error of each layer.
    page = (written.parent / f"{written.stem}-report" / "compile.html").read_text()
    rows = dict(re.findall(r'<td class="name">[^<]*</td><td class="name">(\w+)</td>(.*?)</tr>', page, re.DOTALL))
    assert f">{layers['pool1_out']:.1f} dB<" in rows["pool1_out"]
    assert written.stat().st_size < DIGITS.stat().st_size / 2
    evaluated = inv(
        "model.eval", written, "--board", "host", "--inputs", SAMPLES, "--labels", SAMPLES, "--json", results
    )
    assert "in float" not in evaluated.stdout
    assert json.loads(results.read_text())["accuracy"] >= 0.97


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def _model() -> onnx.ModelProto:
    """A network with a normalisation to fold, a residual sum, and a layer as MatMul and Add."""
    constants = {
        "kernel": _random(6, 3, 3, 3),
        "gamma": np.abs(_random(6)) + 0.5,
        "beta": _random(6),
        "mean": _random(6),
        "variance": np.abs(_random(6)) + 0.1,
        "depthwise": _random(6, 1, 3, 3),
        "dense": _random(6, 5),
        "bias": _random(5),
        "half": np.asarray(0.5, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["conv", "gamma", "beta", "mean", "variance"], ["normal"]),
        helper.make_node("Relu", ["normal"], ["first"]),
        helper.make_node("Conv", ["first", "depthwise"], ["deep"], pads=[1, 1, 1, 1], group=6),
        helper.make_node("Add", ["first", "deep"], ["sum"]),
        helper.make_node("Mul", ["sum", "half"], ["scaled"]),
        helper.make_node("GlobalAveragePool", ["scaled"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "dense"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("kind", "least_db"), [("int8", 20.0), ("int16", 30.0)])
def test_every_kind_of_layer_keeps_its_signal(kind: str, least_db: float) -> None:
    samples = [[_random(1, 3, 8, 8 + number)[..., :8]] for number in range(8)]
    quantized = quantize(_model(), samples, kind)  # type: ignore[arg-type]
    # ONNX's reference evaluator is independent of our code.
    evaluator = ReferenceEvaluator(quantized)
    for sample, (expected,) in zip(samples, model_outputs(_model(), samples), strict=True):
        (output,) = evaluator.run(None, {"x": sample[0]})
        assert np.abs(output - expected).max() < 0.1
        assert output.argmax() == expected.argmax()
    assert {cost.tensor for cost in costs(_model(), quantized, samples)} >= {"first", "sum", "pooled", "scores", "y"}
    assert min(cost.snr_db for cost in costs(_model(), quantized, samples)) > least_db
    weights = {tensor.name: tensor for tensor in quantized.graph.initializer}
    assert weights["depthwise_quantized"].data_type == TensorProto.INT8
    assert len(weights["depthwise_scale"].dims) == 1  # one for each channel
    assert [node.op_type for node in quantized.graph.node].count("BatchNormalization") == 0
    onnx.checker.check_model(quantized, full_check=True)


def test_quantized_model_compiles_in_integers() -> None:
    samples = [[_random(1, 3, 8, 8)]]
    quantized = quantize(_model(), samples)
    model = compiler.from_onnx(quantized.SerializeToString(), "net")
    assert compiler.compile_model(model).leftovers == ()


def _snr_db(expected: list[list[np.ndarray]], output: list[list[np.ndarray]]) -> float:
    a, b = (
        np.concatenate([tensor.ravel() for sample in samples for tensor in sample]) for samples in (expected, output)
    )
    return float(10 * np.log10(np.square(a).sum() / np.square(a - b).sum()))


def _small(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], opset: int, shape: list[int]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)


def test_bias_corrects_the_rounding_of_weights() -> None:
    """Weights of 0.4 steps all become 0: the mean of the output would be wrong by a sixth."""
    kernel = np.full((1, 64, 1, 1), 0.4 / 127, np.float32)
    kernel[0, 0] = 1
    constants = {"kernel": kernel, "shift": np.zeros(1, np.float32)}
    node = helper.make_node("Conv", ["x", "kernel", "shift"], ["y"])
    model = _small([node], constants, 17, [1, 64, 4, 4])
    random = np.random.default_rng(0)
    samples = [[random.uniform(9, 10, (1, 64, 4, 4)).astype(np.float32)] for _ in range(4)]
    results = ReferenceEvaluator(quantize(model, samples)).run(None, {"x": samples[0][0]})
    assert _snr_db(model_outputs(model, samples[:1]), [results]) > 35


@pytest.mark.parametrize("opset", [7, 8, 9, 13, 14])
def test_normalisation_of_every_opset(opset: int) -> None:
    """Expected values are from the definition's formula; ONNX's evaluator does not follow it before opset 14."""
    gamma, beta, mean, variance = np.abs(_random(4, 6)) + 0.5
    constants = {"kernel": _random(6, 3, 3, 3), "gamma": gamma, "beta": beta, "mean": mean, "variance": variance}
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"]),
        helper.make_node("BatchNormalization", ["c", *list(constants)[1:]], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    model, sample = _small(nodes, constants, opset, [1, 3, 6, 6]), [_random(1, 3, 6, 6)]
    (conv,) = runtime(_small([helper.make_node("Conv", ["x", "kernel"], ["y"])], constants, 13, [1, 3, 6, 6])).run(
        None, {"x": sample[0]}
    )
    columns = (parameter.reshape(-1, 1, 1) for parameter in (gamma, beta, mean, variance))
    scale, shift, middle, spread = columns
    expected = np.maximum((conv - middle) / np.sqrt(spread + 1e-5) * scale + shift, 0)
    assert np.allclose(definition(model).run(None, {"x": sample[0]})[0], expected, atol=1e-4)
    assert np.allclose(model_outputs(model, [sample])[0][0], expected, atol=1e-4)
    outputs = runtime(quantize(model, [sample])).run(None, {"x": sample[0]})
    assert _snr_db([[expected]], [outputs]) > 30


def test_normalisation_whose_constants_are_inputs(caplog: pytest.LogCaptureFixture) -> None:
    """So files of versions before 4 have them."""
    constants = {name: np.abs(_random(6)) + 0.5 for name in ("gamma", "beta", "mean", "variance")}
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"]),
        helper.make_node("BatchNormalization", ["c", *constants], ["y"]),
    ]
    model = _small(nodes, {"kernel": _random(6, 3, 3, 3), **constants}, 9, [1, 3, 6, 6])
    model.graph.input.extend(
        helper.make_tensor_value_info(item.name, TensorProto.FLOAT, item.dims) for item in model.graph.initializer
    )
    quantised = quantize(model, [[_random(1, 3, 6, 6)]])
    assert "BatchNormalization" not in {node.op_type for node in quantised.graph.node}
    assert not caplog.messages


def test_weight_behind_a_reshape() -> None:
    nodes = [helper.make_node("Reshape", ["w", "shape"], ["w2"]), helper.make_node("MatMul", ["x", "w2"], ["y"])]
    model = _small(nodes, {"w": _random(2, 3, 4), "shape": np.array([6, 4])}, 9, [1, 6])
    samples = [[_random(1, 6 + number)[:, :6]] for number in range(6)]
    quantized = quantize(model, samples)
    assert _snr_db(model_outputs(model, samples), model_outputs(quantized, samples)) > 30
    assert compiler.compile_model(compiler.from_onnx(quantized.SerializeToString(), "net")).leftovers == ()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_sample_that_is_not_finite_is_refused(value: float) -> None:
    model = _small([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": _random(6, 4)}, 13, [1, 6])
    with pytest.raises(ConfigError, match="a sample of x has a NaN or an infinity"):
        quantize(model, [[np.full((1, 6), value, np.float32)]])


def test_bias_of_two_dimensions() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    model = _small(nodes, {"w": _random(6, 4), "b": _random(1, 4)}, 13, [1, 6])
    samples = [[_random(1, 6 + number)[:, :6]] for number in range(6)]
    assert _snr_db(model_outputs(model, samples), model_outputs(quantize(model, samples), samples)) > 30


def test_a_reduction_whose_axes_become_a_constant() -> None:
    """Axes are an input since operator set 18: the conversion adds a node without inputs."""
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"]),
        helper.make_node("ReduceMean", ["c"], ["y"], axes=[2, 3]),
    ]
    model = _small(nodes, {"kernel": _random(6, 3, 3, 3)}, 13, [1, 3, 6, 6])
    samples = [[_random(1, 3, 6, 6 + number)[..., :6]] for number in range(6)]
    assert _snr_db(model_outputs(model, samples), model_outputs(quantize(model, samples), samples)) > 30


def test_failure_of_onnxruntime_is_one_sentence() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    model = _small(nodes, {"shape": np.array([7, 4]), "w": _random(4, 3)}, 13, [1, 6])
    with pytest.raises(ConfigError, match="ONNX Runtime cannot run the model: ") as caught:
        quantize(model, [[_random(1, 6)]])
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("method", ["MinMax", "Entropy", "Percentile"])
def test_error_is_no_larger_than_onnxruntimes(method: str, tmp_path: Path) -> None:
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rest = [{"x": sample[0]} for sample in samples]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.rest.pop() if self.rest else None

    model = _model()
    del model.graph.node[-1]  # Softmax: its range is TensorFlow Lite's, one step less than 1.
    model.graph.output[0].name = "scores"
    samples = [[_random(1, 3, 8, 8 + number)[..., :8]] for number in range(8)]
    quantization.quantize_static(
        model, tmp_path / "reference.onnx", Reader(), per_channel=True,
        activation_type=quantization.QuantType.QInt8, weight_type=quantization.QuantType.QInt8,
        calibrate_method=quantization.CalibrationMethod[method],
    )  # fmt: skip
    real = model_outputs(model, samples)
    reference = _snr_db(real, model_outputs(onnx.load(tmp_path / "reference.onnx"), samples))
    quantized = quantize(model, samples, calibration=method.lower())
    assert _snr_db(real, model_outputs(quantized, samples)) > reference - 0.5


@pytest.mark.slow
def test_calibrations_clip_outliers() -> None:
    model = _small(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": np.eye(512, dtype=np.float32)}, 13, [512, 512]
    )
    samples = [[_random(512, 512)]]
    samples[0][0][0, 0] = 100
    real = model_outputs(model, samples)
    rest = {
        name: _snr_db([[real[0][0][1:]]], [[model_outputs(quantize(model, samples, "int8", name), samples)[0][0][1:]]])
        for name in CALIBRATIONS
    }
    # 262,144 normal values and one outlier of 100; the best 8-bit range has 40 dB.
    assert rest["minmax"] < 20
    assert rest["percentile"] > 30
    # The large square error of a clipped outlier limits this one.
    assert rest["mse"] > rest["minmax"] + 1


def test_inaccurate_tensors_get_16_bits() -> None:
    samples = [[_random(1, 3, 8, 8)]]
    real = model_outputs(_model(), samples)
    mixed = quantize(_model(), samples, least_db=43)
    types = [tensor.data_type for tensor in mixed.graph.initializer if tensor.name.endswith("_zero_point")]
    assert {TensorProto.INT8, TensorProto.INT16} <= set(types)
    assert _snr_db(real, model_outputs(mixed, samples)) >= _snr_db(
        real, model_outputs(quantize(_model(), samples), samples)
    )
    assert mixed.SerializeToString(deterministic=True) == quantize(_model(), samples, least_db=43).SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([DIGITS], "--samples is missing\n  hint: an .npz"),
        (
            [DIGITS, "--samples", SAMPLES, "--to", "int4"],
            "--to 'int4' is not a type of quantised models\n  hint: one of int8",
        ),
        ([DIGITS, "--samples", "none.npz"], "none.npz"),
        ([DIGITS, "--samples", SAMPLES, "--calibration", "mean"], "'mean' is not a method\n  hint: one of minmax"),
        (
            [DIGITS, "--samples", SAMPLES, "--least-snr", "nan"],
            "--least-snr nan is not possible\n  hint: give 0 dB or more",
        ),
        ([DIGITS, "--samples", SAMPLES, "--least-snr", -5], "--least-snr -5 is not possible"),
        ([DIGITS, "--samples", SAMPLES, "--least-snr", 9, "--to", "16x8"], "--least-snr 9 is not possible"),
        ([DIGITS.with_name("digits_int8.tflite"), "--samples", SAMPLES], "is not an ONNX model"),
    ],
)
def test_usage_error_is_one_message(words: list[object], message: str) -> None:
    completed = inv("model.quantize", *words)
    assert completed.returncode == 2, completed.stderr
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr
