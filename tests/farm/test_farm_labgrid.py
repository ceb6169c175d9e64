# SPDX-License-Identifier: Apache-2.0
"""A labgrid user's own pytest, with labgrid's plugin and nothing of ours, takes a board of a farm of ours."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.farm.farms import LONG, Farm, holders, two_hosts
from utvm.farm.client import labgrid_python
from utvm.paths import ROOT

pytestmark = pytest.mark.nightly  # by day, labgrid's client shares a board with us in test_farm


def _page(heading: str) -> str:
    """Return the block of code that docs/farm.md has below a line."""
    _, _, after = (ROOT / "docs" / "farm.md").read_text(encoding="utf-8").partition(f"`{heading}`")
    return after.partition("```")[2].partition("\n")[2].partition("```")[0]


def _run(farm: Farm, *words: object) -> subprocess.CompletedProcess[str]:
    programs = labgrid_python(lambda _: None).parent
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "LG_COORDINATOR": farm.address}
    command = [programs / str(words[0]), *map(str, words[1:])]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=LONG)


def test_the_page_s_example_runs_on_a_board_that_labgrid_has(tmp_path: Path) -> None:
    for name in ("board.yaml", "conftest.py", "test_board.py"):
        (tmp_path / name).write_text(_page(name).replace("/srv/utvm", str(ROOT)))
    with two_hosts(tmp_path / "farm", "host", "stm32f746") as farm:
        words = ("pytest", "-q", "--rootdir", tmp_path, "--lg-env", tmp_path / "board.yaml", tmp_path)
        refused = _run(farm, *words)
        assert "place desk-host-1 is not acquired" in refused.stdout, refused.stderr
        assert _run(farm, "labgrid-client", "-p", "desk-host-1", "acquire").returncode == 0
        done = _run(farm, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 passed" in done.stdout
        assert _run(farm, "labgrid-client", "-p", "desk-host-1", "release").returncode == 0
        with farm.client() as client:
            assert not any(holders(client).values())
