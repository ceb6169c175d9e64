# SPDX-License-Identifier: Apache-2.0
"""MLPerf Tiny's serial protocol: the benchmark's sequence of commands, utvm's runner, and its figures."""

import contextlib
import json
import os
import pty
import re
import select
import subprocess
import sys
import threading
import tty
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import roc_auc_score

from models.tflite_reference import tflite_micro
from models.tflite_writer import Builder
from tests.cli.running import inv
from utvm import boards, firmware
from utvm.compiler import load
from utvm.drivers import choose
from utvm.errors import BoardError
from utvm.paths import ROOT
from utvm.selection import BoardSelection
from utvm.session.mlperf import auc, start_runner, top_1
from utvm.session.pipes import open_pipe
from utvm.session.transport import Transport

MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"
_BYTES = 64


def _image(name: str) -> firmware.Firmware:
    board = boards.load(name)
    return firmware.build(board, [firmware.compile_for(board, load(MODEL), name="ic01")], "mlperf")


def _reference(pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
    """Return TensorFlow Lite Micro's outputs: int8[number, 10], for pictures uint8[number, 64]."""
    inputs = [[(picture ^ 0x80).view(np.int8).reshape(1, 8, 8, 1)] for picture in pictures]
    return np.concatenate([output for (output,) in tflite_micro(MODEL.read_bytes(), inputs)])


class _ProtocolClient:
    """A client written from the benchmark's protocol alone: it reads lines until one has m-ready in it."""

    def __init__(self, wire: Transport) -> None:
        self._wire = wire
        self._rest = b""

    def lines(self) -> list[str]:
        result: list[str] = []
        while not result or "m-ready" not in result[-1]:
            while b"\n" not in self._rest:
                data = self._wire.read(10.0)
                assert data, f"nothing came after {result} {self._rest!r}"
                self._rest += data
            line, _, self._rest = self._rest.partition(b"\n")
            result.append(line.decode().strip("\r\0"))
        return result

    def send(self, command: str) -> list[str]:
        self._wire.write(command.encode())
        self._wire.write(b"%")
        return self.lines()


@pytest.mark.parametrize("name", ["host", pytest.param("mps2-an385", marks=pytest.mark.slow)])
def test_benchmarks_sequence_of_commands_is_answered(name: str, tmp_path: Path) -> None:
    image = _image(name)
    picture = np.random.default_rng(3).integers(0, 256, (1, _BYTES), np.uint8)
    expected = (_reference(picture)[0].astype(float) - image.libraries[0].outputs[0].scaling.zero_point) * (  # type: ignore[union-attr]
        image.libraries[0].outputs[0].scaling.scale  # type: ignore[union-attr]
    )
    with (
        choose(image.board, BoardSelection()).open(tmp_path, print) as connection,
        open_pipe(connection, image) as wire,
    ):
        connection.program(image)
        wire.restart()
        client = _ProtocolClient(wire.transport)
        # EE_MSG_TIMESTAMP_MODE, th_timestamp(), EE_MSG_INIT_DONE and EE_MSG_READY of benchmark/api.
        mode, lap, *ready = client.lines()
        assert (mode, ready) == ("m-timestamp-mode-performance", ["m-init-done", "m-ready"])
        assert re.fullmatch(r"m-lap-us-\d+", lap)
        assert client.send("name") == [f"m-name-dut-[{name}]", "m-ready"]
        profile = dict(re.findall(r"^m-(model|profile)-\[([^]]+)\]$", "\n".join(client.send("profile")), re.MULTILINE))
        assert profile["model"] == "ic01"
        assert re.fullmatch(r"m-lap-us-\d+", client.send("timestamp")[0])
        assert client.send(f"db load {_BYTES}")[0] == f"m-[Expecting {_BYTES} bytes]"
        data = picture.tobytes()
        replies = [client.send(f"db {data[at : at + 31].hex()}") for at in range(0, _BYTES, 31)]
        assert replies == [["m-ready"], ["m-ready"], ["m-load-done", "m-ready"]]
        assert bytes.fromhex("".join(re.findall(r"[0-9a-f]{2}(?=-|$)", _read_buffer(client)))) == data
        for _ in range(2):
            lines = client.send("infer 2 1")
            assert lines[:3] == ["m-warmup-start-1", "m-warmup-done", "m-infer-start-2"]
            laps = [int(match[1]) for line in lines if (match := re.match(r"^m-lap-us-([0-9]+)$", line))]
            assert len(laps) == 2
            assert laps[0] <= laps[1]
            (scores,) = [match[1] for line in lines if (match := re.match(r"^m-results-\[([^]]+)\]$", line))]
            assert np.allclose([float(number) for number in scores.split(",")], expected, atol=0.000501)
        assert f"m-results-[{scores}]" in client.send("results")


def _read_buffer(client: _ProtocolClient) -> str:
    return "-".join(line.removeprefix("m-buffer-") for line in client.send("db print")[:-1])


def test_wrong_commands_are_named_and_have_no_effect(tmp_path: Path) -> None:
    image = _image("host")
    with (
        choose(image.board, BoardSelection()).open(tmp_path, print) as connection,
        start_runner(connection, image) as runner,
    ):
        for command, message in {
            "sing": "Unknown command: sing",
            "db": "subcommand",
            "db load 65": "The input has 64 bytes",
            # These are exactly those of benchmark/api/internally_implemented.cpp.
            "db load": "Command 'db load' requires the # of bytes",
            "db load 0": "Command 'db load' must be >0 bytes",
            "db 0": "Insufficent number of hex digits",
            "infer 0": "iterations must be >0",
            "infer 99999999999": "iterations must be >0",
            "infer 1 x": "warmup must be >=0",
            "infer -1": "iterations must be >0",
            "x" * 500: "Unknown command: " + "x" * 80,
        }.items():
            with pytest.raises(BoardError, match=re.escape(message)):
                runner.ask(command)
        assert runner.ask("") == []
        runner.load(bytes(_BYTES))
        assert runner.infer(1, 0).runs == 1
        # Digits behind the last byte have no effect; one that is not hexadecimal is refused.
        runner.ask("db load 1")
        with pytest.raises(BoardError, match="Invalid hex digit '0z'"):
            runner.ask("db 0zz0")
        assert runner.ask("db 00zz") == ["m-load-done"]


# The steps of the runner's main.py with a device on a serial line, except finding it by its USB numbers.
_MAIN = """
import json, sys
from datasets import DataSet
from device_under_test import DUT
from script import Script

port, data, mode, loops, infer, found = sys.argv[1:]
dut = DUT(port, baud_rate=115200)
with dut:
    named = [dut.get_name(), dut.get_model(), dut.get_profile()]
steps = [{f"loop {loops}": ["download", f"infer {infer}"]}]
script = Script({"name": "", "model": named[1], "truth_file": "y_labels.csv", "script": steps})
rows = script.run(None, dut, DataSet(data, script.truth), mode)
with open(found, "w") as file:
    json.dump([named, rows], file)
"""


@contextlib.contextmanager
def _terminal(wire: Transport) -> Iterator[str]:
    """Yield the name of a pseudo terminal whose other end is a board's console."""
    controller, terminal = pty.openpty()
    tty.setraw(terminal)
    ended = threading.Event()

    def to_board() -> None:
        while not ended.is_set():
            if select.select([controller], [], [], 0.1)[0]:
                wire.write(os.read(controller, 4096))

    def from_board() -> None:
        while not ended.is_set():
            if data := wire.read(0.1):
                os.write(controller, data)

    threads = [threading.Thread(target=relay) for relay in (to_board, from_board)]
    for thread in threads:
        thread.start()
    try:
        yield os.ttyname(terminal)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        os.close(controller)
        os.close(terminal)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["mps2-an385", "stm32f746"])
def test_benchmarks_own_runner_gets_correct_results(name: str, tmp_path: Path) -> None:
    runner = Path(os.environ.get("MLPERF_TINY", "nowhere")) / "benchmark" / "runner"
    if not runner.is_dir():
        pytest.skip("the runner is not here: MLPERF_TINY is no checkout of mlcommons/tiny")
    pictures = np.random.default_rng(13).integers(0, 256, (5, _BYTES), np.uint8)
    _write_data(tmp_path / "ic01", pictures, np.arange(5))
    image = _image(name)
    scaling = image.libraries[0].outputs[0].scaling
    assert scaling is not None
    expected = (_reference(pictures).astype(float) - scaling.zero_point) * scaling.scale
    selection = BoardSelection(kind="virtual" if image.board.physical else "auto")
    with choose(image.board, selection).open(tmp_path, print) as connection, open_pipe(connection, image) as wire:
        connection.program(image)
        wire.restart()
        _ProtocolClient(wire.transport).lines()
        with _terminal(wire.transport) as port:
            for mode, infer in (("p", "20 5"), ("a", "1 0")):
                command = [sys.executable, "-c", _MAIN, port, tmp_path / "ic01", mode, "5", infer, tmp_path / "found"]
                variables = {**os.environ, "PYTHONPATH": str(runner)}
                subprocess.run(command, cwd=tmp_path, env=variables, check=True, timeout=300)
                names, rows = json.loads((tmp_path / "found").read_text())
                assert names == [name, "ic01", "ULPMark for tinyML Firmware V0.0.1"]
                runs = [row["infer"] for row in rows if "infer" in row]
                assert np.allclose([run["results"] for run in runs], expected, atol=0.000501)
                assert all(run["elapsed_time"] > 0 for run in runs)


def _write_data(folder: Path, pictures: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> None:
    folder.mkdir()
    rows = [f"file_{number}.bin, 10, {label}" for number, label in enumerate(labels)]
    (folder / "y_labels.csv").write_text("\n".join(rows) + "\n")
    for number, picture in enumerate(pictures):
        (folder / f"file_{number}.bin").write_bytes(picture.tobytes())


@pytest.mark.slow
def test_accuracy_equals_the_references(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    pictures, labels = random.integers(0, 256, (30, _BYTES), np.uint8), random.integers(0, 10, 30)
    outputs = _reference(pictures)
    labels[:9] = outputs[:9].argmax(axis=1)
    _write_data(tmp_path / "ic01", pictures, labels)
    arguments = ("--model", MODEL, "--task", "ic01", "--board", "host", "--data", tmp_path / "ic01")
    completed = inv("mlperf.run", *arguments, "--mode", "accuracy", "--json", tmp_path / "y.json")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    report = json.loads((tmp_path / "y.json").read_text())
    assert (report["kind"], report["samples"]) == ("process", 30)
    assert report["top_1"] == float(np.mean(outputs.argmax(axis=1) == labels))
    classes = sorted(set(labels.tolist()))
    areas = [roc_auc_score(labels == label, outputs[:, label]) for label in classes]
    assert report["auc"] == pytest.approx(np.mean(areas), abs=1e-9)


@pytest.mark.slow
def test_performance_of_a_virtual_board_has_no_time(tmp_path: Path) -> None:
    arguments = ("--model", MODEL, "--task", "ic01", "--board", "microbit", "--samples", 2, "--iterations", 2)
    completed = inv("mlperf.run", *arguments, "--json", tmp_path / "y.json")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    report = json.loads((tmp_path / "y.json").read_text())
    assert (report["unit"], report["inferences_per_second"]) == ("instructions", None)
    assert len(set(report["per_inference"])) == 1
    assert "instructions are not time" in completed.stdout
    assert "not an official result" in completed.stdout


def _autoencoder() -> bytes:
    """Return a dense layer from 20 numbers to 20, int8."""
    random = np.random.default_rng(11)
    builder = Builder()
    builder.tensor("x", (1, 20), "int8", scale=0.06, zero_point=-7)
    builder.tensor("w", (20, 20), "int8", random.integers(-127, 128, (20, 20)), scale=0.004)
    builder.tensor("b", (20,), "int32", random.integers(-900, 900, 20), scale=0.06 * 0.004)
    builder.tensor("y", (1, 20), "int8", scale=0.05, zero_point=12)
    builder.operator("FULLY_CONNECTED", ["x", "w", "b"], ["y"])
    return builder.finish(["x"], ["y"])


@pytest.mark.slow
@pytest.mark.parametrize("board", ["host", pytest.param("microbit", marks=pytest.mark.slow)])
def test_anomaly_is_far_from_the_models_output(board: str, tmp_path: Path) -> None:
    random, model = np.random.default_rng(6), _autoencoder()
    (tmp_path / "auto.tflite").write_bytes(model)
    rows, means, labels = [], [], random.permutation(np.repeat([0, 1], 5))
    for number, label in enumerate(labels):
        # Windows of 20 numbers, 4 apart; some numbers are outside of the input's range.
        content = (random.standard_normal(33) * (2 + 2 * label)).astype(np.float32)
        (tmp_path / f"{number}.bin").write_bytes(content.tobytes())
        rows.append(f"{number}.bin, 2, {label}, 80, 16")
        windows = [content[at : at + 20] for at in range(0, 14, 4)]
        # No number here is halfway between two integers, so numpy's rounding to even is correct.
        inputs = [(np.round(window / np.float32(0.06)) - 7).clip(-128, 127).astype(np.int8)[None] for window in windows]
        outputs = [output for (output,) in tflite_micro(model, [[sample] for sample in inputs])]
        rebuilt = [(output[0].astype(np.float64) - 12) * np.float32(0.05) for output in outputs]
        means.append(np.mean([np.mean((a - b) ** 2) for a, b in zip(rebuilt, windows, strict=True)]))
    (tmp_path / "y_labels.csv").write_text("\n".join(rows))
    arguments = ("--model", tmp_path / "auto.tflite", "--task", "ad01", "--board", board, "--data", tmp_path)
    completed = inv("mlperf.run", *arguments, "--mode", "accuracy", "--json", tmp_path / "y.json")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    report = json.loads((tmp_path / "y.json").read_text())
    assert report["distances"] == pytest.approx(means, abs=0.001)
    assert (report["samples"], report["windows"]) == (10, 40)
    assert report["auc"] == roc_auc_score(labels, means)
    completed = inv("mlperf.run", *arguments, "--samples", 2, "--iterations", 1)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert re.findall(r"^window .*: (\S+)$", completed.stdout, re.MULTILINE) == ["0.bin", "1.bin"]


def test_figures_equal_scikit_learns() -> None:
    random = np.random.default_rng(9)
    scores, labels = random.integers(0, 4, (50, 3)).astype(float), random.integers(0, 3, 50)
    expected = np.mean([roc_auc_score(labels == label, scores[:, label]) for label in range(3)])
    assert auc(scores, labels) == pytest.approx(expected)
    assert auc(scores, np.zeros(50, np.int64)) is None
    assert top_1(scores, scores.argmax(axis=1)) == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "ic02"], "--task ic01, vww01, kws01, ad01"),
        (["--task", "ad01"], "an output like its input, int8 or float32, not int8[1, 8, 8, 1]"),
        (["--task", "ic01", "--mode", "energy"], "--mode performance or"),
        (["--task", "ic01", "--mode", "accuracy"], "--data FOLDER"),
        (["--task", "ic01", "--data", "nowhere"], "y_labels.csv"),
        (["--task", "ic01", "--data", "data"], "line 1 is not a row"),
        (["--task", "ic01", "--data", "short"], "has 3 bytes, but the model's input has 64"),
        (["--task", "ic01", "--iterations", "0"], "--iterations 1 or more"),
    ],
)
def test_wrong_arguments_give_one_message(arguments: list[str], message: str, tmp_path: Path) -> None:
    for folder, row in (("data", "../secret, 10, 1"), ("short", "a.bin,10,1")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "y_labels.csv").write_text(row)
        (tmp_path / folder / "a.bin").write_bytes(b"abc")
    completed = inv("mlperf.run", "--model", MODEL, "--board", "host", *arguments, cwd=tmp_path)
    assert completed.returncode == 2, completed.stdout + completed.stderr
    assert message in completed.stderr
