# SPDX-License-Identifier: Apache-2.0
"""``model.eval`` on processes and virtual boards, and ``model.run`` on a process."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml

from models.cifar10_cnn.network import image_inputs, network, random_parameters
from models.digits.data import held_out
from models.digits.quantize import FLOAT_MODEL, MODEL, quantized_images
from models.tflite_reference import tflite_micro
from tests.cli.running import inv
from utvm import boards
from utvm.quantize import quantize

_EVAL = ("model.eval", "--model")
_PORT = """
#include "utvm.h"

/* A faulty board: after its second run, it changes the fourth byte of the output. */
static uint32_t disturbed(uint32_t counts) {
  if ((utvm_running.program == 0u) && (utvm_running.step != UTVM_NOTHING) && (utvm_reply.runs == 1u)) {
    ((uint8_t *)utvm_programs[0].outputs[0])[3] ^= 1u;
  }
  return counts;
}
"""


def _expected(count: int) -> list[list[int]]:
    images = quantized_images(held_out()[0][:count])
    outputs = tflite_micro(MODEL.read_bytes(), [[image[np.newaxis]] for image in images])
    return [logits[0].tolist() for (logits,) in outputs]


@pytest.mark.slow
def test_each_sample_prints_prediction_and_logits(tmp_path: Path) -> None:
    results = tmp_path / "eval.json"
    completed = inv(*_EVAL, "digits_int8", "--board", "host", "--samples", "3", "--json", results)
    assert completed.returncode == 0, completed.stderr
    content = json.loads(results.read_text())
    assert content["validated_against"] is None and content["mismatches"] == []
    expected = _expected(3)
    assert [sample["outputs"]["logits"] for sample in content["samples"]] == [[logits] for logits in expected]
    more = inv(*_EVAL, "digits_int8", "--board", "host", "--samples", "401")
    assert (more.returncode, "digits_int8: holds 400 samples, not 401" in more.stderr) == (2, True)
    lines = [line for line in completed.stdout.splitlines() if line.startswith("sample ")]
    for number, (line, logits, sample) in enumerate(zip(lines, expected, content["samples"], strict=True)):
        match = re.fullmatch(r"sample (\d+)  predicted (\d+)  ([\d,]+) ns  \[\[(.+)\]\]", line)
        assert match, line
        assert int(match[1]) == number
        assert int(match[2]) == int(np.argmax(logits)) == sample["prediction"]
        assert int(match[3].replace(",", "")) == sample["ns"] > 0
        assert [int(word) for word in match[4].split()] == logits


@pytest.mark.slow
def test_two_emulated_boards_and_a_process_agree(tmp_path: Path) -> None:
    counts = []
    for board, second in (("stm32f746", "mps2-an500"), ("mps2-an500", "host")):
        results = tmp_path / f"{board}.json"
        words = ("--board", board, "--virtual", "--samples", "2", "--validate-against", second, "--json", results)
        completed = inv(*_EVAL, "cifar10_cnn", *words)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        assert "weights: random, seed 0" in completed.stdout
        assert f"2 of 2 samples agree with {second}, bit for bit" in completed.stdout
        assert " ms" not in completed.stdout
        counts.append([sample["instructions"] for sample in json.loads(results.read_text())["samples"]])
    # The boards read their counters differently; the counts differ as on other models.
    np.testing.assert_allclose(*counts, rtol=0.01)


@pytest.mark.slow
def test_faulty_board_is_detected(tmp_path: Path) -> None:
    folder = tmp_path / "faulty"
    original = boards.load_chip("mps2-an500")
    shutil.copytree(original.directory, folder)
    # The original's port is shared between boards: the faulty board gets a copy of its own.
    assert original.port
    data = folder / "board.yaml"
    content = yaml.safe_load(data.read_text()) | {"name": "faulty", "port": None}
    data.write_text(yaml.safe_dump(content, sort_keys=False))
    text = original.port_source.read_text()
    assert text.count("UTVM_COUNTS * (uint64_t)counts") == 1
    numbers = "".join(f"#define {definition.replace('=', ' ')}\n" for definition in original.port.defines)
    faulty = text.replace("UTVM_COUNTS * (uint64_t)counts", "UTVM_COUNTS * (uint64_t)disturbed(counts)")
    (folder / "port.c").write_text(numbers + _PORT + faulty)
    results = tmp_path / "eval.json"
    for board, second in ((folder, "host"), ("host", folder)):
        words = ("--board", board, "--samples", "3", "--validate-against", second, "--json", results)
        completed = inv(*_EVAL, "digits_int8", *words)
        assert completed.returncode == 1, completed.stdout + completed.stderr
        correct = _expected(3)[1][3]
        values = {"host": correct, folder: correct ^ 1}
        names = {"host": "host", folder: "faulty"}
        assert (
            f"MISMATCH in sample 1: logits[0, 3] is {values[board]} on {names[board]}, "
            f"{values[second]} on {names[second]}; 1 of 10 elements differ"
        ) in completed.stdout
        assert completed.stdout.count("MISMATCH") == 1
        assert f"1 of 3 samples differ between {names[board]} and {names[second]}" in completed.stdout
        (mismatch,) = json.loads(results.read_text())["mismatches"]
        assert (mismatch["sample"], mismatch["output"], mismatch["index"]) == (1, "logits", [0, 3])
        assert (mismatch["value"], mismatch["expected"]) == (values[board], values[second])


@pytest.mark.slow
def test_images_and_weights_come_from_files(tmp_path: Path) -> None:
    images = np.random.default_rng(11).integers(0, 256, (3, 32, 32, 3), np.uint8)
    input_file, weights, results = (tmp_path / name for name in ("x.npy", "weights.json", "eval.json"))
    np.save(input_file, images)
    parameters = random_parameters(4)
    weights.write_text(json.dumps({name: array.tolist() for name, array in parameters.items()}))
    words = ("--board", "host", "--inputs", input_file, "--set", f"weights={weights}", "--json", results)
    completed = inv(*_EVAL, "cifar10_cnn", *words)
    assert completed.returncode == 0, completed.stderr
    assert "seed" not in completed.stdout
    samples = [[image[np.newaxis]] for image in image_inputs(parameters, images)]
    expected = tflite_micro(network(parameters), samples)
    outputs = [sample["outputs"]["logits"] for sample in json.loads(results.read_text())["samples"]]
    assert outputs == [logits.tolist() for (logits,) in expected]
    assert inv(*_EVAL, "cifar10_cnn", *words, "--samples", "2").returncode == 0
    assert [sample["outputs"]["logits"] for sample in json.loads(results.read_text())["samples"]] == outputs[:2]
    assert "weights: random, seed 0" in inv(*_EVAL, "cifar10_cnn", "--board", "host", "--inputs", input_file).stdout


@pytest.mark.slow
def test_model_file_runs_on_input_files(tmp_path: Path) -> None:
    input_file, results = tmp_path / "x.npz", tmp_path / "eval.json"
    np.savez(input_file, image=quantized_images(held_out()[0][:2]))
    completed = inv(*_EVAL, MODEL, "--board", "host", "--inputs", input_file, "--json", results)
    assert completed.returncode == 0, completed.stderr
    outputs = [sample["outputs"]["logits"] for sample in json.loads(results.read_text())["samples"]]
    assert outputs == [[logits] for logits in _expected(2)]


@pytest.mark.slow
def test_operators_in_float_are_reported(tmp_path: Path) -> None:
    images = held_out()[0][:4]
    quantized = quantize(onnx.load(FLOAT_MODEL), [[image[None]] for image in images], "int16")
    onnx.save(quantized, tmp_path / "wide.onnx")
    completed = inv(*_EVAL, tmp_path / "wide.onnx", "--board", "host", "--samples", "1")
    assert completed.returncode == 0, completed.stderr
    line = next(line for line in completed.stdout.splitlines() if line.startswith("in float, though"))
    assert "its result has more than one scale, or more than 8 bits" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs MODEL"),
        (["no-such"], "there is no model 'no-such'\n  hint: name a model file, or one of: cifar10_cnn, digits"),
        (["digits", "--set", "weights=w.json"], "digits takes no file of weights\n  hint: these do: cifar10_cnn"),
        ([MODEL, "--set", "weights=w.json"], "a model file has its own weights"),
        (["cifar10_cnn", "--set", "weights=none.json"], "none.json: cannot be read"),
        (["digits", "--inputs", "none.npy"], "none.npy: cannot be read"),
        (["digits", "--samples", "-1"], "must be 1 or more"),
        (["digits", "--samples", "0"], "must be 1 or more"),
        (["digits", "--validate-against", "no-such"], "there is no board 'no-such'"),
        (["digits", "--virtual"], "host is a process"),
        (["digits", "--json", "nowhere/x.json"], "its folder does not exist"),
    ],
)
def test_usage_error_is_one_message_and_exit_code_2(words: list[object], message: str) -> None:
    model = ["--model", *words] if words else []
    completed = inv("model.eval", *model, "--board", "host")
    assert completed.returncode == 2, completed.stdout + completed.stderr
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "array", "message"),
    [
        ("cifar10_cnn", np.zeros((2, 32, 32, 3), np.float32), "not float32 [2, 32, 32, 3]"),
        ("cifar10_cnn", np.zeros((2, 3, 32, 32), np.uint8), "not uint8 [2, 3, 32, 32]"),
        ("digits_int8", np.zeros((2, 8, 8), np.int8), "int8 [1, 8, 8, 1]"),
        ("digits_int8", np.zeros((0, 8, 8, 1), np.int8), "holds 0 samples"),
        ("digits_int8", np.zeros((3, 8, 8, 1), np.int8), "holds 3 samples, not 4"),
    ],
)
def test_invalid_inputs_are_refused(
    tmp_path: Path, model: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], message: str
) -> None:
    input_file = tmp_path / "x.npy"
    np.save(input_file, array)
    samples = ("--samples", 4) if len(array) > 2 else ()
    completed = inv(*_EVAL, model, "--board", "host", "--inputs", input_file, *samples)
    assert completed.returncode == 2, completed.stdout + completed.stderr
    assert message in completed.stderr


@pytest.mark.slow
def test_model_file_runs_on_a_process(tmp_path: Path) -> None:
    image = quantized_images(held_out()[0][:1])
    input_file, output_file, figures = (tmp_path / name for name in ("x.npy", "y.npy", "figures.json"))
    np.save(input_file, image)
    words = ("model.run", "--model", MODEL, "--board", "host", "--input", input_file)
    completed = inv(*words, "--output", output_file, "--json", figures)
    assert completed.returncode == 0, completed.stderr
    assert "host: a process on this computer" in completed.stdout
    assert np.load(output_file).tolist() == _expected(1)
    assert set(json.loads(figures.read_text())) == {"ns", "outputs_sha256", "environment"}
    for option, message in (("--standing-alone", "it has no debug port"), ("--virtual", "neither plugged in nor")):
        refused = inv(*words, option)
        assert refused.returncode == 2
        assert message in refused.stderr
