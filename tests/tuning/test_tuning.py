# SPDX-License-Identifier: Apache-2.0
"""Tuning a model, as its guide shows it."""

import contextlib
import json
import re
import shlex
import signal
import subprocess
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import inv
from tests.session.served import served
from tests.session.test_tracker import stock_tracker
from utvm import boards
from utvm.base.process.run import free_port
from utvm.cli.compiling import compile_for
from utvm.cli.model_inputs import random_inputs
from utvm.compiler import load
from utvm.paths import ROOT
from utvm.selection import BoardSelection
from utvm.session.board_holder import BoardHolder
from utvm.tuning.log import origin_of
from utvm.tuning.measure import Candidate, LocalMeasurer, TrackerMeasurer
from utvm.tuning.tuner import Tuner, layers_of

pytestmark = pytest.mark.slow

GUIDE = ROOT / "docs" / "tuning.md"
DIGITS = ROOT / "models" / "digits"


def test_guide_session_gives_a_library_no_slower(tmp_path: Path) -> None:
    (tmp_path / "models").symlink_to(ROOT / "models")
    session, *_ = re.findall(r"```\n(\./inv model\.tune .*?)```", GUIDE.read_text(), re.DOTALL)
    done = [inv(*shlex.split(line)[1:], cwd=tmp_path) for line in session.splitlines()]
    assert [each.returncode for each in done] == [0] * 4, done
    assert "VIRTUAL" in done[0].stdout and "outputs are equal bit for bit" in done[0].stdout
    counts, digests = zip(
        *(
            re.findall(r"modelled cycles ([\d,]+).*?outputs_sha256 (\w+)", each.stdout, re.DOTALL)[0]
            for each in done[1:3]
        ),
        strict=True,
    )
    before, after = (int(count.replace(",", "")) for count in counts)
    assert after <= before
    page = (tmp_path / "digits.jsonl.html").read_text()
    assert page.count("<circle ") == 16 and "Modelled cycles: instructions, and what they wait for" in page
    assert digests[0] == digests[1]
    with tarfile.open(tmp_path / "digits-tuned.tar") as archive:
        member = archive.extractfile("./metadata.json")
        assert member
        own = json.load(member)["utvm"]
    assert own["target"]["core"] == "cortex-m7"


def test_tuning_alone_finds_twice_as_fast_loops(tmp_path: Path) -> None:
    """What is kept in the log is packaged as any."""
    board, model, log = boards.load("mps2-an500"), load(DIGITS / "digits.onnx"), tmp_path / "log"
    layers = [
        replace(layer, target=replace(layer.target, tuned=((layer.name, "one result at a time"),)))
        for layer in layers_of(model, board.target)
    ]
    logs = tmp_path / "logs"
    keeper = BoardHolder(board, BoardSelection(board=board.name), logs, lambda _: None)
    keeper.attach()
    try:
        tuner = Tuner(layers, LocalMeasurer(keeper, in_ram=False), origin_of(board), log, [])
        list(tuner.run(16))
    finally:
        keeper.release()
    before, after = (sum(row[number] * row[0].times for row in tuner.rows()) for number in (1, 2))
    assert after * 2 < before
    archive = tmp_path / "tuned.tar"
    options = ("--board", board.name, "--set", f"tuned={log}", "--output", archive)
    done = inv("model.package", "--model", DIGITS / "digits.onnx", *options)
    assert done.returncode == 0, done.stderr
    with tarfile.open(archive) as tar:
        member = tar.extractfile("./metadata.json")
        assert member
        own = json.load(member)["utvm"]
    assert own["target"]["tuned"]
    assert "loops as they were tuned" in {call["kernel"] for call in own["calls"]}


def test_a_log_is_gone_on_from_and_refused_elsewhere(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = ("--model", DIGITS / "digits_int8.tflite", "--board", "mps2-an500", "--log", log, "--json")
    first = inv("model.tune", *options)
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    # Plain C beside the DSP extension, for each of the three layers; it is slower, so all stays as it is.
    assert found["candidates"] == len(found["layers"]) == 3
    assert {each["kind"] for each in found["layers"]} == {"default"}
    assert found["outputs_equal"] and found["before"] == found["tuned"]
    second = inv("model.tune", *options)
    assert json.loads(second.stdout)["candidates"] == 0
    run = ("model.run", "--model", DIGITS / "digits_int8.tflite", "--set", f"tuned={log}", "--board")
    refused = inv(*run, "mps2-an385")
    assert refused.returncode == 2
    assert "line 1 was measured with cpu arm-none-eabi/cortex-m7" in refused.stderr
    with log.open("a") as file:
        file.write('{"board": "mps2-an500"\n')
    damaged = inv(*run, "mps2-an500")
    assert damaged.returncode == 2 and "is damaged" in damaged.stderr


@pytest.mark.nightly
def test_a_model_of_flash_finds_what_instructions_do_not(tmp_path: Path) -> None:
    model = ("--model", DIGITS / "digits.onnx")
    for name, board in (("plain", "stm32f746:cycles=off"), ("waits", "stm32f746")):
        done = inv("model.tune", *model, "--board", board, "--trials", "16", "--log", tmp_path / name)
        assert done.returncode == 0, done.stderr
    plain, waits = (
        {(each["layer"], each["choice"]): each["counts"][0] for each in _lines(tmp_path / name)}
        for name in ("plain", "waits")
    )
    both = plain.keys() & waits.keys()
    assert any(
        plain[one] < plain[other] and waits[one] > waits[other] for one in both for other in both if one[0] == other[0]
    )
    for name in ("plain", "waits"):
        # What is computed without tuning may be the best by both.
        lines = (tmp_path / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(line for line in lines if json.loads(line)["kind"] == "trace"))
    counts = [
        int(re.findall(r"modelled cycles ([\d,]+)", done.stdout)[0].replace(",", ""))
        for name in ("plain", "waits")
        for done in [inv("model.run", *model, "--board", "stm32f746", "--cycles", "--set", f"tuned={tmp_path / name}")]
    ]
    assert counts[1] < counts[0]


def _lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.nightly
def test_a_board_that_dies_costs_a_retry(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with stock_tracker(tmp_path / "tracker", free_port()) as (host, port), contextlib.ExitStack() as stack:
        where = ("--tracker", f"{host}:{port}")
        folders = [tmp_path / name for name in ("one", "other")]
        for folder in folders:
            folder.mkdir()
        boards = [stack.enter_context(served(folder, "--board", "host", *where)) for folder in folders]
        command = [ROOT / "inv", "model.tune", DIGITS / "digits.onnx", "--board", "host", "--trials", "24"]
        tuning = subprocess.Popen([*command, "--log", log, *where], stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 300
        while boards[1].output().count("is on the board") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        boards[1].process.kill()
        said, _ = tuning.communicate(timeout=300)
        assert tuning.returncode == 0, said
        assert "2 boards" in said and "outputs are equal bit for bit" in said
    lines = _lines(log)
    assert not [each["error"] for each in lines if each["error"]]
    assert sum(each["kind"] == "trace" for each in lines) == 24


def test_a_server_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    board, model = boards.load("host"), load(DIGITS / "digits.onnx")
    library = compile_for(board, model)
    asked = [Candidate(library, random_inputs(library, np.random.default_rng(1)))]
    with stock_tracker(tmp_path / "tracker", free_port()) as address, contextlib.ExitStack() as stack:
        where = ("--board", "host", "--tracker", f"{address[0]}:{address[1]}")
        folders = [tmp_path / name for name in ("one", "other")]
        for folder in folders:
            folder.mkdir()
        one, _ = (stack.enter_context(served(folder, *where)) for folder in folders)
        tracked = stack.enter_context(TrackerMeasurer(address, "host", board, model, limit=15))
        while tracked.board_count() < 2:
            time.sleep(0.1)
        assert all(each.counts for each in tracked.measure(asked * 4))
        one.process.send_signal(signal.SIGSTOP)
        try:
            # Its worker is ended with what it was given, and that is measured on the other one.
            assert all(each.counts for each in tracked.measure(asked * 4))
        finally:
            one.process.send_signal(signal.SIGCONT)


def test_without_a_tracker_there_is_nothing_to_tune_on(tmp_path: Path) -> None:
    words = ("model.tune", DIGITS / "digits.onnx", "--board", "host", "--log", tmp_path / "log", "--tracker")
    nobody = inv(*words, f"127.0.0.1:{free_port()}")
    assert nobody.returncode == 3 and "no tracker answers" in nobody.stderr
    assert "is not HOST:PORT" in inv(*words, "here").stderr
