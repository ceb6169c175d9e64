# SPDX-License-Identifier: Apache-2.0
"""A labgrid user's own pytest, with labgrid's plugin and none of our code, uses a board of our farm."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.farm.farms import LONG, Farm, holders, two_hosts
from utvm.farm.client import labgrid_python
from utvm.paths import ROOT

pytestmark = pytest.mark.nightly  # the daily tests share a board with labgrid's client, in test_farm


def _code_block(heading: str) -> str:
    """Return the code block below a line of docs/farm.md."""
    _, _, after = (ROOT / "docs" / "farm.md").read_text(encoding="utf-8").partition(f"`{heading}`")
    return after.partition("```")[2].partition("\n")[2].partition("```")[0]


def _run(farm: Farm, *words: object) -> subprocess.CompletedProcess[str]:
    programs = labgrid_python(lambda _: None).parent
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "LG_COORDINATOR": farm.address}
    command = [programs / str(words[0]), *map(str, words[1:])]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=LONG)


def test_example_of_the_page_runs_on_a_labgrid_board(tmp_path: Path) -> None:
    for name in ("board.yaml", "conftest.py", "test_board.py"):
        (tmp_path / name).write_text(_code_block(name).replace("/srv/utvm", str(ROOT)))
    with two_hosts(tmp_path / "farm", "host", "stm32f746") as farm:
        words = ("pytest", "-q", "--rootdir", tmp_path, "--lg-env", tmp_path / "board.yaml", tmp_path)
        refused = _run(farm, *words)
        assert "place desk-host-1 is not acquired" in refused.stdout, refused.stderr
        assert _run(farm, "labgrid-client", "-p", "desk-host-1", "acquire").returncode == 0
        completed = _run(farm, *words)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        assert "1 passed" in completed.stdout
        assert _run(farm, "labgrid-client", "-p", "desk-host-1", "release").returncode == 0
        with farm.client() as client:
            assert not any(holders(client).values())
