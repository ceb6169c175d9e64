# SPDX-License-Identifier: Apache-2.0
"""A search on several leased boards at once, each served at its own host."""

import sys
from pathlib import Path

import psutil
import pytest

from tests.farm.farms import Farm, holders, two_hosts, until
from utvm.paths import ROOT

pytestmark = pytest.mark.slow

_DIGITS = ROOT / "models" / "digits" / "digits.onnx"
# As farms.py's, and it leads there and back: -R and -W.
_LEADING_SSH = """#!{python}
import signal, socket, subprocess, sys
sys.path.insert(0, {root!r})
from tests.faults.relay import Relay

words = sys.argv[1:]
while words[0].startswith("-"):
    word = words.pop(0)
    if word in ("-o", "-l"):
        words.pop(0)
    if word.startswith("-R"):
        at, _, to = word[2:].split(":")
        Relay(int(to), at).__enter__()
    if word.startswith("-W"):
        for way in Relay(int(word.partition(":")[2])).lead(socket.socket(fileno=0)):
            way.join()
        sys.exit()
command = subprocess.Popen(["sh", "-c", " ".join(words[1:])])
signal.signal(signal.SIGTERM, lambda *_: command.terminate())
sys.exit(command.wait())
"""


def _search(farm: Farm, log: Path, *words: str) -> tuple[str, ...]:
    return ("model.tune", str(_DIGITS), "--board", "host", "--log", str(log), "--in", "farm", *words)


def _servers() -> list[psutil.Process]:
    """Return the processes that serve the boards, whose key nobody else's have."""
    found = [each for each in psutil.process_iter(["cmdline"]) if "board.serve" in (each.info["cmdline"] or ())]
    return [each for each in found if "python" in each.info["cmdline"][0]]


@pytest.mark.nightly
def test_boards_of_two_hosts_tune_together(tmp_path: Path) -> None:
    with two_hosts(tmp_path / "farm", "host", "host,host") as farm:
        ssh = tmp_path / "farm" / "bin" / "ssh"
        ssh.write_text(_LEADING_SSH.format(python=sys.executable, root=str(ROOT)))
        refused = farm.inv(*_search(farm, tmp_path / "log", "--count", "2", "--tags", "host=attic"))
        assert (refused.returncode, "no place of the farm has board=host, host=attic" in refused.stderr) == (2, True)
        words = _search(farm, tmp_path / "log", "--count", "3", "--trials", "6")
        with farm.begun(*words, **farm.with_ssh) as run:
            said = until(run, "boards with the key")
            assert said.count("leased ") == 3
            _servers()[0].kill()
            said += run.communicate()[0]
        assert run.returncode == 0, said
        assert "outputs are equal bit for bit" in said
        with farm.client() as client:
            assert not any(holders(client).values())
        assert not _servers()
