# SPDX-License-Identifier: Apache-2.0
"""The table of accelerators: a further one, in one folder, is found by every command with nothing else changed."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from models.digits import quantize
from models.tflite_reference import tflite_micro
from tests.cli.running import inv
from utvm import boards


def _board(folder: Path, **block: object) -> Path:
    folder.mkdir()
    content = yaml.safe_load((boards.load("host").directory / "board.yaml").read_text())
    content |= {"name": folder.name, "accelerator": {"multiplier": {"clock_hz": 1_000_000_000, **block}}}
    (folder / "board.yaml").write_text(yaml.safe_dump(content))
    return folder


@pytest.mark.slow
def test_a_further_accelerator_computes_a_part_of_a_network(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    described = packages / "multiplier-1.dist-info"
    described.mkdir(parents=True)
    shutil.copytree(Path(__file__).parent / "multiplier", packages, dirs_exist_ok=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: multiplier\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[utvm.accelerators]\nmultiplier = utvm_multiplier:ACCELERATOR\n")
    picture = np.random.default_rng(1).integers(-128, 128, (1, 8, 8, 1), "int8")
    np.save(tmp_path / "x.npy", picture)

    def run(board: Path) -> bytes:
        out = tmp_path / "y.npy"
        words = ("model.run", "--model", quantize.MODEL, "--raw", "--input", tmp_path / "x.npy", "--output", out)
        done = inv(*words, "--board", board, PYTHONPATH=str(packages))
        assert done.returncode == 0, done.stderr
        return np.load(out).tobytes()

    ((expected,),) = tflite_micro(quantize.MODEL.read_bytes(), [[picture]])
    assert run(_board(tmp_path / "right")) == expected.tobytes()
    assert run(_board(tmp_path / "wrong", wrong_by=100_000)) != expected.tobytes()
    refused = inv("model.run", "--model", quantize.MODEL, "--board", tmp_path / "right")
    assert refused.returncode == 2 and "there is no such accelerator" in refused.stderr
