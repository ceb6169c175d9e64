# SPDX-License-Identifier: Apache-2.0
"""The table of accelerators: a second one, in one folder, is available to every command without other changes."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import utvm
from hil_tests.int8_cases import Quantised, convolution
from models.digits import quantize
from models.tflite_reference import tflite_micro
from tests.cli.running import inv
from utvm import boards
from utvm.boards import accelerators
from utvm.compiler import CompileOptions, Library, from_tflite
from utvm.errors import UtvmError
from utvm.firmware import compile_for
from utvm.session.fault import DeviceFault

_REGISTERS = 0x58000000  # Unused, between the peripherals of an STM32F746.
_POINTS = convolution("points", Quantised((1, 6, 5, 20), 0.05, 7), Quantised((1, 6, 5, 24), 0.3, -3), (1, 1))

Boards = Callable[..., boards.Board]


@pytest.fixture
def multipliers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Boards]:
    """Create boards with a multiplier, provided by an installed package."""
    packages = tmp_path / "packages"
    metadata = packages / "multiplier-1.dist-info"
    metadata.mkdir(parents=True)
    shutil.copytree(Path(__file__).parent / "utvm_multiplier", packages / "utvm_multiplier")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: multiplier\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[utvm.accelerators]\nmultiplier = utvm_multiplier:ACCELERATOR\n")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.syspath_prepend(str(packages))
    accelerators.table.cache_clear()

    def create(name: str, like: str, **block: Any) -> boards.Board:
        folder = tmp_path / name
        shutil.copytree(boards.load(like).directory, folder)
        content = yaml.safe_load((folder / "board.yaml").read_text())
        content |= {"name": name, "accelerator": {"multiplier": {"clock_hz": 1_000_000_000, **block}}}
        (folder / "board.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return boards.load(str(folder))

    yield create
    accelerators.table.cache_clear()


def _run(board: boards.Board, library: Library, sample: Any) -> Any:
    with utvm.open(str(board.directory)) as opened:
        return opened.load(library).run(*sample).outputs[0]


@pytest.mark.slow
def test_multiplier_computes_layers_in_a_process(multipliers: Boards, tmp_path: Path) -> None:
    picture = np.random.default_rng(1).integers(-128, 128, (1, 8, 8, 1), "int8")
    np.save(tmp_path / "x.npy", picture)

    def run(board: boards.Board) -> bytes:
        out = tmp_path / "y.npy"
        command = ("model.run", "--model", quantize.MODEL, "--input", tmp_path / "x.npy", "--output", out)
        completed = inv(*command, "--board", board.directory)
        assert completed.returncode == 0, completed.stderr
        return np.load(out).tobytes()

    ((expected,),) = tflite_micro(quantize.MODEL.read_bytes(), [[picture]])
    right = multipliers("right", "host")
    assert run(right) == expected.tobytes()
    assert run(multipliers("wrong", "host", wrong_by=100_000)) != expected.tobytes()
    refused = inv("model.run", "--model", quantize.MODEL, "--board", right.directory, PYTHONPATH="")
    assert refused.returncode == 2 and "there is no such accelerator" in refused.stderr


@pytest.mark.slow
def test_multiplier_is_on_the_bus_of_a_virtual_board(multipliers: Boards) -> None:
    """A wrong multiplier shows which layers it computes: only their outputs are wrong."""
    right = multipliers("right", "stm32f746", registers=_REGISTERS)
    wrong = multipliers("wrong", "stm32f746", registers=_REGISTERS, wrong_by=100_000)
    slow = multipliers("slow", "stm32f746", registers=_REGISTERS, wrong_by=100_000, clock_hz=10_000)
    model = from_tflite(_POINTS.content(), "points")
    sample = _POINTS.runs()[2]
    ((expected,),) = tflite_micro(_POINTS.content(), [sample])
    offloaded, on_cpu = (
        compile_for(right, model, CompileOptions(accelerator="all")),
        compile_for(right, model, CompileOptions(accelerator="off")),
    )
    assert (offloaded.accelerator, on_cpu.accelerator) == ("multiplier", "")
    np.testing.assert_array_equal(_run(right, offloaded, sample), expected)
    assert (_run(wrong, offloaded, sample) != expected).any()
    np.testing.assert_array_equal(_run(wrong, on_cpu, sample), expected)
    # "auto" depends on the clock.
    assert compile_for(right, model).accelerator == "multiplier"
    assert not compile_for(slow, model).accelerator


@pytest.mark.slow
def test_network_split_on_a_virtual_board_is_reported(multipliers: Boards, tmp_path: Path) -> None:
    board = multipliers("right", "stm32f746", registers=_REGISTERS)
    picture = np.random.default_rng(2).integers(-128, 128, (1, 8, 8, 1), "int8")
    np.save(tmp_path / "x.npy", picture)
    assert json.loads(inv("board.show", board.directory, "--json").stdout)["accelerator"] == "multiplier"
    options = ("--model", quantize.MODEL, "--board", board.directory, "--set", "accelerator=all")
    completed = inv("model.run", *options, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    assert completed.returncode == 0, completed.stderr
    assert "VIRTUAL board, a software model, with a model of multiplier on its bus" in completed.stdout
    ((expected,),) = tflite_micro(quantize.MODEL.read_bytes(), [[picture]])
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
    completed = inv("model.report", *options, "--output", tmp_path / "report")
    assert completed.returncode == 0, completed.stderr
    (report,) = (tmp_path / "report").glob("*/compile.json")
    reasons = {decision["where"]: decision["reason"] for decision in json.loads(report.read_text())["decisions"]}
    assert reasons == {"multiplier": "accelerator=all requests it", "CPU": "it multiplies matrices, and no windows"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"answers": False}, "accelerator failed: the multiplier: no answer"),
        ({"registers": 0x40023800}, "create at 0x40023800 takes 1024 bytes, and overlaps a memory or another device"),
        ({"registers": 0x20000400}, "accelerator.multiplier: registers: 0x20000400 lies in the memory dtcm"),
        ({"registers": 0x58000002}, "create at 0x58000002: not a multiple of 1024"),
        ({"registers": None}, "the accelerator multiplier of mine cannot be driven: its registers are unknown"),
    ],
)
def test_unusable_accelerator_is_named(block: dict[str, Any], message: str, multipliers: Boards) -> None:
    board = multipliers("mine", "stm32f746", **{"registers": _REGISTERS, **block})
    model = from_tflite(_POINTS.content(), "points")
    with pytest.raises((DeviceFault, UtvmError)) as caught:
        _run(board, compile_for(board, model, CompileOptions(accelerator="all")), _POINTS.runs()[0])
    assert message in str(caught.value)
