# SPDX-License-Identifier: Apache-2.0
"""Commands of the machine where room, rights, files or memory are scarce: a line, and nothing is left behind."""

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

# There the machine of the checkout would be meant, which may be somebody's.
_SCARCE = [name for name in SCARCE if "home" not in name]
_NONE = ("vm.destroy", "vm.halt", "vm.halt --suspend")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout's own box, elsewhere: the folder that it is made in may be what is scarce."""
    done = inv("vm.box", timeout=2400)
    assert done.returncode == 0, done.stderr
    return Path(shutil.copytree(ROOT / "build" / "box", tmp_path_factory.mktemp("box") / "box"))


@pytest.mark.parametrize("scarce", _SCARCE)
@pytest.mark.parametrize("command", [*_NONE, "vm.up"])
def test_what_is_scarce_is_said_in_a_line_and_nothing_is_left(
    command: str, scarce: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    places = create_folders(tmp_path)
    words = command.split()
    if command == "vm.up":
        words += ["--box", str(request.getfixturevalue("box") / CATALOGUE)]
    # Vagrant's boxes are where it is scarce; the records are not, so that what was made can be taken away.
    own = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_DATA_HOME": str(places["OUT"] / "data")}
    destroy = shlex.join([sys.executable, "-m", "utvm", "vm.destroy"])
    after = f"mount -o remount,rw,size=2g $OUT 2>/dev/null || true\n{destroy} >/dev/null || code=99"
    call(words, places, SCARCE[scarce], after=after, **own)
    records = records_of(state=tmp_path / "state" / "utvm")
    assert real.Real(records, Machine(records), own).left() == []
