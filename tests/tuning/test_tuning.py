# SPDX-License-Identifier: Apache-2.0
"""Tuning a model by the commands of its guide."""

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
from tests.session.board_server import serve_board
from tests.session.test_tracker import stock_tracker
from utvm import boards
from utvm.base.process import free_port
from utvm.cli.compiling import compile_for
from utvm.compiler import load
from utvm.firmware.inputs import random_inputs
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
    results = [inv(*shlex.split(line)[1:], cwd=tmp_path) for line in session.splitlines()]
    assert [result.returncode for result in results] == [0] * 4, results
    assert "VIRTUAL" in results[0].stdout and "outputs are equal bit for bit" in results[0].stdout
    counts, digests = zip(
        *(
            re.findall(r"modelled cycles ([\d,]+).*?outputs_sha256 (\w+)", result.stdout, re.DOTALL)[0]
            for result in results[1:3]
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
        metadata = json.load(member)["utvm"]
    assert metadata["target"]["core"] == "cortex-m7"


def test_tuning_alone_finds_twice_as_fast_loops(tmp_path: Path) -> None:
    """The tuned loops in the log are also packaged."""
    board, model, log = boards.load("mps2-an500"), load(DIGITS / "digits.onnx"), tmp_path / "log"
    layers = [
        replace(layer, target=replace(layer.target, tuned=((layer.name, "one result at a time"),)))
        for layer in layers_of(model, board.target)
    ]
    logs = tmp_path / "logs"
    holder = BoardHolder(board, BoardSelection(board=board.name), logs, lambda _: None)
    holder.attach()
    try:
        tuner = Tuner(layers, LocalMeasurer(holder, in_ram=False), origin_of(board), log, [])
        list(tuner.run(16))
    finally:
        holder.release()
    before, after = (sum(row[number] * row[0].times for row in tuner.rows()) for number in (1, 2))
    assert after * 2 < before
    archive = tmp_path / "tuned.tar"
    options = ("--board", board.name, "--set", f"tuned={log}", "--output", archive)
    completed = inv("model.package", "--model", DIGITS / "digits.onnx", *options)
    assert completed.returncode == 0, completed.stderr
    with tarfile.open(archive) as tar:
        member = tar.extractfile("./metadata.json")
        assert member
        metadata = json.load(member)["utvm"]
    assert metadata["target"]["tuned"]
    assert "loops as they were tuned" in {call["kernel"] for call in metadata["calls"]}


def test_log_is_continued_and_refused_for_another_cpu(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = ("--model", DIGITS / "digits_int8.tflite", "--board", "mps2-an500", "--log", log, "--json")
    first = inv("model.tune", *options)
    assert first.returncode == 0, first.stderr
    report = json.loads(first.stdout)
    # Plain C, for each of three layers, is slower and not chosen. The first layer can also leave its weights in flash,
    # which takes fewer instructions than a copy in RAM.
    assert report["candidates"] == len(report["layers"]) + 1 == 4
    assert [layer["kind"] for layer in report["layers"]] == ["kernel", "default", "default"]
    assert report["outputs_equal"] and report["before"] > report["tuned"]
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
def test_flash_model_changes_the_best_choice(tmp_path: Path) -> None:
    model = ("--model", DIGITS / "digits.onnx")
    for name, board in (("plain", "stm32f746:cycles=off"), ("waits", "stm32f746")):
        completed = inv("model.tune", *model, "--board", board, "--trials", "16", "--log", tmp_path / name)
        assert completed.returncode == 0, completed.stderr
    plain, waits = (
        {(entry["layer"], entry["choice"]): entry["counts"][0] for entry in _read_entries(tmp_path / name)}
        for name in ("plain", "waits")
    )
    both = plain.keys() & waits.keys()
    assert any(
        plain[first] < plain[second] and waits[first] > waits[second]
        for first in both
        for second in both
        if first[0] == second[0]
    )
    for name in ("plain", "waits"):
        # The default may be the best by both measures.
        lines = (tmp_path / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(line for line in lines if json.loads(line)["kind"] == "trace"))
    counts = [
        int(re.findall(r"modelled cycles ([\d,]+)", completed.stdout)[0].replace(",", ""))
        for name in ("plain", "waits")
        for completed in [
            inv("model.run", *model, "--board", "stm32f746", "--cycles", "--set", f"tuned={tmp_path / name}")
        ]
    ]
    assert counts[1] < counts[0]


def _read_entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.nightly
def test_lost_board_costs_a_retry(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with stock_tracker(tmp_path / "tracker", free_port()) as (host, port), contextlib.ExitStack() as stack:
        where = ("--tracker", f"{host}:{port}")
        folders = [tmp_path / name for name in ("one", "other")]
        for folder in folders:
            folder.mkdir()
        boards = [stack.enter_context(serve_board(folder, "--board", "host", *where)) for folder in folders]
        command = [ROOT / "inv", "model.tune", DIGITS / "digits.onnx", "--board", "host", "--trials", "24"]
        tuning = subprocess.Popen([*command, "--log", log, *where], stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 300
        while boards[1].output().count("is on the board") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        boards[1].process.kill()
        output, _ = tuning.communicate(timeout=300)
        assert tuning.returncode == 0, output
        assert "2 boards" in output and "outputs are equal bit for bit" in output
    entries = _read_entries(log)
    assert not [entry["error"] for entry in entries if entry["error"]]
    assert sum(entry["kind"] == "trace" for entry in entries) == 24


def test_hanging_server_is_abandoned(tmp_path: Path) -> None:
    board, model = boards.load("host"), load(DIGITS / "digits.onnx")
    library = compile_for(board, model)
    candidates = [Candidate(library, random_inputs(library, np.random.default_rng(1)))]
    with stock_tracker(tmp_path / "tracker", free_port()) as address, contextlib.ExitStack() as stack:
        where = ("--board", "host", "--tracker", f"{address[0]}:{address[1]}")
        folders = [tmp_path / name for name in ("one", "other")]
        for folder in folders:
            folder.mkdir()
        first, _ = (stack.enter_context(serve_board(folder, *where)) for folder in folders)
        tracked = stack.enter_context(TrackerMeasurer(address, "host", board, model, limit=15))
        while tracked.board_count() < 2:
            time.sleep(0.1)
        assert all(result.counts for result in tracked.measure(candidates * 4))
        first.process.send_signal(signal.SIGSTOP)
        try:
            # Its worker is stopped, and the other server measures the candidate.
            assert all(result.counts for result in tracked.measure(candidates * 4))
        finally:
            first.process.send_signal(signal.SIGCONT)


def test_missing_tracker_is_an_error(tmp_path: Path) -> None:
    command = ("model.tune", DIGITS / "digits.onnx", "--board", "host", "--log", tmp_path / "log", "--tracker")
    completed = inv(*command, f"127.0.0.1:{free_port()}")
    assert completed.returncode == 3 and "no tracker answers" in completed.stderr
    assert "is not HOST:PORT" in inv(*command, "here").stderr
