# SPDX-License-Identifier: Apache-2.0
"""``firmware.build`` and ``model.run --standing-alone``."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from models.tflite_reference import tflite_micro
from tests.cli.running import inv
from utvm.paths import ROOT

MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"
BOARD = ("--model", MODEL, "--board", "stm32f746")


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(7).integers(-128, 128, (1, 8, 8, 1), np.int8))
    return path


@pytest.mark.slow
def test_firmware_is_an_elf_and_a_binary_file(tmp_path: Path, picture: Path) -> None:
    elf = tmp_path / "digits.elf"
    completed = inv("firmware.build", *BOARD, "--input", picture, "--output", elf)
    assert completed.returncode == 0, completed.stderr
    block = elf.with_suffix(".bin").read_bytes()
    assert np.load(picture).tobytes() in block
    with elf.open("rb") as file:
        vectors = ELFFile(file).get_section_by_name(".vectors")
        assert block.startswith(vectors.data())
        assert f"digits.bin for address {vectors['sh_addr']:#010x}" in completed.stdout
    model, stored, board, runtime = (
        int(re.search(rf"{name} ([\d,]+)", completed.stdout)[1].replace(",", ""))  # type: ignore[index]
        for name in ("model", "stored input", "board", "runtime")
    )
    assert stored == 64
    # Sections begin at multiples of up to 16.
    assert len(block) - 64 <= model + stored + board + runtime <= len(block)
    assert "of 1,048,576 bytes" in completed.stdout
    assert "seed" not in completed.stdout
    again = inv("firmware.build", *BOARD, "--input", picture, "--output", tmp_path / "again.elf", "--json")
    assert again.returncode == 0
    results = json.loads(again.stdout)
    assert results["shares"] == {"model": model, "stored": stored, "board": board, "runtime": runtime}
    assert (results["address"], results["flash_bytes"]) == (vectors["sh_addr"], model + stored + board + runtime)
    assert (tmp_path / "again.elf").read_bytes() == elf.read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--board", "stm32f746"], "needs MODEL"),
        ([*BOARD, "--output", "digits.bin"], "must end in .elf"),
        ([*BOARD, "--output", "nowhere/digits.elf"], "its folder does not exist"),
        ([*BOARD, "--input", "none.npy"], "none.npy"),
    ],
)
def test_build_error_is_one_message(words: list[object], message: str) -> None:
    completed = inv("firmware.build", *words)
    assert completed.returncode == 2
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.slow
def test_model_runs_on_an_undebugged_board(tmp_path: Path, picture: Path) -> None:
    output_file, figures = tmp_path / "y.npy", tmp_path / "figures.json"
    words = ("model.run", *BOARD, "--virtual", "--input", picture, "--output", output_file, "--json", figures)
    completed = inv(*words, "--standing-alone")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "power-cycled" in completed.stdout
    assert "power on" in completed.stdout
    ((expected,),) = tflite_micro(MODEL.read_bytes(), [[np.load(picture)]])
    assert np.load(output_file).tobytes() == expected.tobytes()
    alone = json.loads(figures.read_text())
    assert inv(*words).returncode == 0
    driven = json.loads(figures.read_text())
    for figure in ("instructions", "outputs_sha256"):
        assert alone[figure] == driven[figure]
