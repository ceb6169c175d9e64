# SPDX-License-Identifier: Apache-2.0
"""A search on several leased boards at once, each served by its own host."""

import sys
from pathlib import Path

import psutil
import pytest

from tests.farm.farms import Farm, holders, two_hosts, until
from utvm.paths import ROOT

pytestmark = pytest.mark.slow

_DIGITS = ROOT / "models" / "digits" / "digits.onnx"
# As in farms.py, with port forwarding in both directions: -R and -W.
_FORWARDING_SSH = """#!{python}
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
        for thread in Relay(int(word.partition(":")[2])).forward(socket.socket(fileno=0)):
            thread.join()
        sys.exit()
command = subprocess.Popen(["sh", "-c", " ".join(words[1:])])
signal.signal(signal.SIGTERM, lambda *_: command.terminate())
sys.exit(command.wait())
"""


def _search(farm: Farm, log: Path, *words: str) -> tuple[str, ...]:
    return ("model.tune", str(_DIGITS), "--board", "host", "--log", str(log), "--in", "farm", *words)


def _servers() -> list[psutil.Process]:
    """Return the processes that serve boards."""
    servers = [one for one in psutil.process_iter(["cmdline"]) if "board.serve" in (one.info["cmdline"] or ())]
    return [one for one in servers if "python" in one.info["cmdline"][0]]


@pytest.mark.nightly
def test_boards_of_two_hosts_tune_together(tmp_path: Path) -> None:
    with two_hosts(tmp_path / "farm", "host", "host,host") as farm:
        ssh = tmp_path / "farm" / "bin" / "ssh"
        ssh.write_text(_FORWARDING_SSH.format(python=sys.executable, root=str(ROOT)))
        refused = farm.inv(*_search(farm, tmp_path / "log", "--count", "2", "--tags", "host=attic"))
        assert (refused.returncode, "no place of the farm has board=host, host=attic" in refused.stderr) == (2, True)
        words = _search(farm, tmp_path / "log", "--count", "3", "--trials", "6")
        with farm.start(*words, **farm.with_ssh) as run:
            output = until(run, "boards with the key")
            assert output.count("leased ") == 3
            _servers()[0].kill()
            output += run.communicate()[0]
        assert run.returncode == 0, output
        assert "outputs are equal bit for bit" in output
        with farm.client() as client:
            assert not any(holders(client).values())
        assert not _servers()
