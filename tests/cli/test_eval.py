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

/* A board that is wrong: behind its second run, it writes to the fourth byte of the output. */
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
    written = tmp_path / "eval.json"
    done = inv(*_EVAL, "digits_int8", "--board", "host", "--samples", "3", "--json", written)
    assert done.returncode == 0, done.stderr
    content = json.loads(written.read_text())
    assert content["validated_against"] is None and content["mismatches"] == []
    expected = _expected(3)
    assert [sample["outputs"]["logits"] for sample in content["samples"]] == [[logits] for logits in expected]
    more = inv(*_EVAL, "digits_int8", "--board", "host", "--samples", "401")
    assert (more.returncode, "digits_int8: holds 400 samples, not 401" in more.stderr) == (2, True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("sample ")]
    for number, (line, logits, sample) in enumerate(zip(lines, expected, content["samples"], strict=True)):
        found = re.fullmatch(r"sample (\d+)  predicted (\d+)  ([\d,]+) ns  \[\[(.+)\]\]", line)
        assert found, line
        assert int(found[1]) == number
        assert int(found[2]) == int(np.argmax(logits)) == sample["prediction"]
        assert int(found[3].replace(",", "")) == sample["ns"] > 0
        assert [int(word) for word in found[4].split()] == logits


@pytest.mark.slow
def test_two_emulated_boards_and_a_process_agree(tmp_path: Path) -> None:
    counts = []
    for board, other in (("stm32f746", "mps2-an500"), ("mps2-an500", "host")):
        written = tmp_path / f"{board}.json"
        words = ("--board", board, "--virtual", "--samples", "2", "--validate-against", other, "--json", written)
        done = inv(*_EVAL, "cifar10_cnn", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "weights: random, seed 0" in done.stdout
        assert f"2 of 2 samples agree with {other}, bit for bit" in done.stdout
        assert " ms" not in done.stdout
        counts.append([sample["instructions"] for sample in json.loads(written.read_text())["samples"]])
    # As the two agree on other models: what differs is how each board's counter is read.
    np.testing.assert_allclose(*counts, rtol=0.01)


@pytest.mark.slow
def test_a_board_that_computes_something_else_is_found_out(tmp_path: Path) -> None:
    folder = tmp_path / "liar"
    honest = boards.load_chip("mps2-an500")
    shutil.copytree(honest.directory, folder)
    # Its port is one that boards share: the liar has it for itself, with its numbers.
    assert honest.port
    data = folder / "board.yaml"
    content = yaml.safe_load(data.read_text()) | {"name": "liar", "port": None}
    data.write_text(yaml.safe_dump(content, sort_keys=False))
    text = honest.port_source.read_text()
    assert text.count("UTVM_COUNTS * (uint64_t)counts") == 1
    numbers = "".join(f"#define {one.replace('=', ' ')}\n" for one in honest.port.defines)
    lying = text.replace("UTVM_COUNTS * (uint64_t)counts", "UTVM_COUNTS * (uint64_t)disturbed(counts)")
    (folder / "port.c").write_text(numbers + _PORT + lying)
    written = tmp_path / "eval.json"
    for board, other in ((folder, "host"), ("host", folder)):
        words = ("--board", board, "--samples", "3", "--validate-against", other, "--json", written)
        done = inv(*_EVAL, "digits_int8", *words)
        assert done.returncode == 1, done.stdout + done.stderr
        right = _expected(3)[1][3]
        values = {"host": right, folder: right ^ 1}
        names = {"host": "host", folder: "liar"}
        assert (
            f"MISMATCH in sample 1: logits[0, 3] is {values[board]} on {names[board]}, "
            f"{values[other]} on {names[other]}; 1 of 10 elements differ"
        ) in done.stdout
        assert done.stdout.count("MISMATCH") == 1
        assert f"1 of 3 samples differ between {names[board]} and {names[other]}" in done.stdout
        (mismatch,) = json.loads(written.read_text())["mismatches"]
        assert (mismatch["sample"], mismatch["output"], mismatch["index"]) == (1, "logits", [0, 3])
        assert (mismatch["value"], mismatch["expected"]) == (values[board], values[other])


@pytest.mark.slow
def test_images_and_weights_come_from_files(tmp_path: Path) -> None:
    images = np.random.default_rng(11).integers(0, 256, (3, 32, 32, 3), np.uint8)
    given, weights, written = (tmp_path / name for name in ("x.npy", "weights.json", "eval.json"))
    np.save(given, images)
    parameters = random_parameters(4)
    weights.write_text(json.dumps({name: array.tolist() for name, array in parameters.items()}))
    words = ("--board", "host", "--inputs", given, "--set", f"weights={weights}", "--json", written)
    done = inv(*_EVAL, "cifar10_cnn", *words)
    assert done.returncode == 0, done.stderr
    assert "seed" not in done.stdout
    samples = [[image[np.newaxis]] for image in image_inputs(parameters, images)]
    expected = tflite_micro(network(parameters), samples)
    got = [sample["outputs"]["logits"] for sample in json.loads(written.read_text())["samples"]]
    assert got == [logits.tolist() for (logits,) in expected]
    assert inv(*_EVAL, "cifar10_cnn", *words, "--samples", "2").returncode == 0
    assert [sample["outputs"]["logits"] for sample in json.loads(written.read_text())["samples"]] == got[:2]
    assert "weights: random, seed 0" in inv(*_EVAL, "cifar10_cnn", "--board", "host", "--inputs", given).stdout


@pytest.mark.slow
def test_a_model_file_runs_on_inputs_of_ones_own(tmp_path: Path) -> None:
    given, written = tmp_path / "x.npz", tmp_path / "eval.json"
    np.savez(given, image=quantized_images(held_out()[0][:2]))
    done = inv(*_EVAL, MODEL, "--board", "host", "--inputs", given, "--json", written)
    assert done.returncode == 0, done.stderr
    got = [sample["outputs"]["logits"] for sample in json.loads(written.read_text())["samples"]]
    assert got == [[logits] for logits in _expected(2)]


@pytest.mark.slow
def test_what_of_a_quantised_model_is_in_float_is_said(tmp_path: Path) -> None:
    images = held_out()[0][:4]
    made = quantize(onnx.load(FLOAT_MODEL), [[image[None]] for image in images], "int16")
    onnx.save(made, tmp_path / "wide.onnx")
    done = inv(*_EVAL, tmp_path / "wide.onnx", "--board", "host", "--samples", "1")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("in float, though"))
    assert "its result has more than one scale, or more than 8 bits" in line


@pytest.mark.parametrize(
    ("words", "said"),
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
def test_wrong_usage_is_one_message_and_exit_code_2(words: list[object], said: str) -> None:
    named = ["--model", *words] if words else []
    done = inv("model.eval", *named, "--board", "host")
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "array", "said"),
    [
        ("cifar10_cnn", np.zeros((2, 32, 32, 3), np.float32), "not float32 [2, 32, 32, 3]"),
        ("cifar10_cnn", np.zeros((2, 3, 32, 32), np.uint8), "not uint8 [2, 3, 32, 32]"),
        ("digits_int8", np.zeros((2, 8, 8), np.int8), "int8 [1, 8, 8, 1]"),
        ("digits_int8", np.zeros((0, 8, 8, 1), np.int8), "holds 0 samples"),
        ("digits_int8", np.zeros((3, 8, 8, 1), np.int8), "holds 3 samples, not 4"),
    ],
)
def test_inputs_that_the_model_does_not_take_are_refused(
    tmp_path: Path, model: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], said: str
) -> None:
    given = tmp_path / "x.npy"
    np.save(given, array)
    samples = ("--samples", 4) if len(array) > 2 else ()
    done = inv(*_EVAL, model, "--board", "host", "--inputs", given, *samples)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr


@pytest.mark.slow
def test_a_process_runs_a_model_of_ones_own(tmp_path: Path) -> None:
    image = quantized_images(held_out()[0][:1])
    given, came, figures = (tmp_path / name for name in ("x.npy", "y.npy", "figures.json"))
    np.save(given, image)
    words = ("model.run", "--model", MODEL, "--board", "host", "--input", given)
    done = inv(*words, "--output", came, "--json", figures)
    assert done.returncode == 0, done.stderr
    assert "host: a process on this computer" in done.stdout
    assert np.load(came).tolist() == _expected(1)
    assert set(json.loads(figures.read_text())) == {"ns", "outputs_sha256", "environment"}
    for option, said in (("--standing-alone", "it has no debug port"), ("--virtual", "neither plugged in nor")):
        refused = inv(*words, option)
        assert refused.returncode == 2
        assert said in refused.stderr
