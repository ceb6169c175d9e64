# SPDX-License-Identifier: Apache-2.0
"""Commands of the machine with scarce disk space, permissions, files or memory: one error, and nothing remains."""

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.cli.scarce import SCARCE, call, create_folders
from tests.environment.machine import real
from tests.processes import may_make_mounts
from utvm.environment.builds import CATALOGUE
from utvm.environment.machine.machine import Machine
from utvm.environment.machine.settings import records_of
from utvm.paths import ROOT

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(real.missing()), reason=f"this machine lacks {real.missing()}"),
    pytest.mark.skipif(not may_make_mounts(), reason="no mounts of one's own here (unshare --mount)"),
]

# Without a home, they would use the machine of the checkout, which may be in use.
_SCARCE = [name for name in SCARCE if "home" not in name]
_NONE = ("vm.destroy", "vm.halt", "vm.halt --suspend")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout's box: the folder in which it is built may be the scarce resource."""
    completed = inv("vm.box", timeout=2400)
    assert completed.returncode == 0, completed.stderr
    return Path(shutil.copytree(ROOT / "build" / "box", tmp_path_factory.mktemp("box") / "box"))


@pytest.mark.parametrize("scarce", _SCARCE)
@pytest.mark.parametrize("command", [*_NONE, "vm.up"])
def test_scarcity_is_one_error_and_leaves_nothing(
    command: str, scarce: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folders = create_folders(tmp_path)
    words = command.split()
    if command == "vm.up":
        words += ["--box", str(request.getfixturevalue("box") / CATALOGUE)]
    # Vagrant's boxes are on the scarce disk; the records are not, so that the machine can be removed.
    variables = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_DATA_HOME": str(folders["OUT"] / "data")}
    destroy = shlex.join([sys.executable, "-m", "utvm", "vm.destroy"])
    after = f"mount -o remount,rw,size=2g $OUT 2>/dev/null || true\n{destroy} >/dev/null || code=99"
    call(words, folders, SCARCE[scarce], after=after, **variables)
    records = records_of(state=tmp_path / "state" / "utvm")
    assert real.Real(records, Machine(records), variables).leftovers() == []
