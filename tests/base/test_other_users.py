# SPDX-License-Identifier: Apache-2.0
"""Another user of this computer connects to whatever commands listen on, and none of it answers.

With ``--anyone`` it answers: so each test sees that an answer would be noticed.
"""

import contextlib
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.farm.farms import Farm, two_hosts, until
from tests.history.reports import report_of, write
from tests.session.served import served
from tests.strangers import Address, knock, listening, needs_root
from utvm.base.process.peer import OwnerOnlySocket
from utvm.errors import ProvisionError
from utvm.farm import client
from utvm.farm.client import coordinator_address, labgrid_python
from utvm.paths import ROOT

pytestmark = needs_root

_OWN, _ANYONE = "only user root of this computer may connect", "ANYONE who reaches it may connect"
_DIGITS = ROOT / "models" / "digits"
# By day, pages show that an answer is noticed.
_OR_ANYONE = pytest.mark.parametrize("anyone", [False, pytest.param(True, marks=pytest.mark.nightly)])


@contextlib.contextmanager
def _begun(folder: Path, *words: str, ready: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Have a command run; return what it has printed until it was ready, and its process."""
    command = [sys.executable, "-m", "utvm", *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield until(process, ready), process
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("anyone", [False, True])
def test_pages_of_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anyone: bool) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "utvm.yaml").write_text("boards: [{board: host}]\n")
    write(tmp_path, report_of(1))
    assert inv("history.import", "build").returncode == 0
    options = ["--format", "pages", "--serve", "0", *(["--anyone"] if anyone else [])]
    with _begun(tmp_path, "history.export", *options, ready="http://") as (said, process):
        assert (_ANYONE if anyone else _OWN) in said
        addresses = listening(process.pid)
        assert len(addresses) == 1
        assert knock(addresses, 12 if anyone else 200) == ({*addresses} if anyone else set())
        url = re.search(r"http://\S+", said)
        assert url
        with urllib.request.urlopen(url[0], timeout=20) as answer:
            assert b"<html" in answer.read()


@pytest.mark.slow
@_OR_ANYONE
def test_a_board_s_rpc_server(tmp_path: Path, anyone: bool) -> None:
    options = ["--anyone"] if anyone else []
    with served(tmp_path, "--board", "host", *options) as board:
        assert (_ANYONE if anyone else _OWN) in board.said()
        addresses = listening(board.process.pid)
        server = Address("", board.address, board.port)
        assert knock(addresses, 12 if anyone else 200) == ({server} if anyone else set())
        assert knock(addresses, 20, uid=0) == {server}


def test_an_address_of_other_computers_is_for_anyone_or_refused() -> None:
    words = ("board.serve", _DIGITS / "digits_int8.tflite", "--board", "host", "--listen", "0.0.0.0")
    refused = inv(*words)
    assert (refused.returncode, "--listen 0.0.0.0 can be reached from other computers" in refused.stderr) == (2, True)
    assert "--anyone" in refused.stderr


@pytest.mark.slow
@_OR_ANYONE
def test_a_farm(tmp_path: Path, anyone: bool) -> None:
    labgrid_python(lambda _: None)
    farm = Farm(tmp_path / "farm")
    port = farm.address.rpartition(":")[2]
    words = ("farm.up", "--port", port, *(["--anyone"] if anyone else []), "--virtual", "host")
    with _begun(tmp_path, *words, ready="boards are offered") as (said, process):
        assert (_ANYONE if anyone else _OWN) in said
        addresses = listening(process.pid)
        door = Address("", "127.0.0.1", int(port))
        assert knock(addresses, 12 if anyone else 200) == ({door} if anyone else set())
        proxy = "http://127.0.0.1:9"
        listed = farm.inv("farm.list", http_proxy=proxy, https_proxy=proxy, grpc_proxy=proxy)
        assert (listed.returncode, "host, process" in listed.stdout) == (0, True), listed.stderr


_SQUAT = """
import os, socket
os.setuid(65534)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
kept = [listener.accept() for _ in range(9)]
"""


def test_a_coordinator_of_another_user_is_taken_by_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-I", "-c", _SQUAT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stranger:
        try:
            assert stranger.stdout
            port = int(stranger.stdout.readline())
            monkeypatch.delenv("LG_COORDINATOR", raising=False)
            monkeypatch.setattr(client, "DEFAULT_PORT", port)
            with pytest.raises(ProvisionError, match="belongs to another user"):
                coordinator_address()
            monkeypatch.setenv("LG_COORDINATOR", f"127.0.0.1:{port}")
            assert coordinator_address() == f"127.0.0.1:{port}"
            monkeypatch.delenv("LG_COORDINATOR")
        finally:
            stranger.kill()
    with OwnerOnlySocket.listen_on("127.0.0.1", port) as own:
        accepted: list[object] = []

        def accept() -> None:
            with contextlib.suppress(OSError):  # closed below
                accepted.append(own.accept())

        threading.Thread(target=accept, daemon=True).start()
        assert coordinator_address() == f"127.0.0.1:{port}"


@pytest.mark.slow
def test_tvm_s_tracker(tmp_path: Path) -> None:
    """TVM's own is for everybody; ours needs that ``tracker._tracker_server`` takes a listening socket."""
    with _run([sys.executable, "-m", "utvm.tuning.tracker"], "the tracker listens on port") as process:
        addresses = listening(process.pid)
        assert knock(addresses, 200) == set()
        assert knock(addresses, 20, uid=0) == {*addresses}


@contextlib.contextmanager
def _run(command: list[str], ready: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            until(process, ready)
            yield process
        finally:
            process.kill()


@pytest.mark.nightly  # by day, a farm and the tracker are tried alone
def test_a_search_on_leased_boards(tmp_path: Path) -> None:
    with two_hosts(tmp_path / "farm", "host,host", "host") as farm:
        words = ("model.tune", str(_DIGITS / "digits.onnx"), "--board", "host", "--log", str(tmp_path / "log"))
        words = (*words, "--in", "farm", "--count", "2", "--tags", "host=desk", "--trials", "6")
        with farm.begun(*words) as run:
            until(run, "boards with the key")
            tries = 0
            while run.poll() is None and tries < 2000:
                addresses = listening(run.pid)
                if addresses:
                    assert knock(addresses, 60) == set()
                    tries += 60
            said, _ = run.communicate(timeout=300)
        assert run.returncode == 0, said
        assert tries >= 200
        assert "outputs are equal bit for bit" in said


@pytest.mark.slow
@_OR_ANYONE
def test_a_virtual_board(tmp_path: Path, anyone: bool) -> None:
    words = ("board.virtual", "--board", "stm32f746", "--port", "0", "--usb", "cmsis-dap", "--listen", "0")
    with _begun(tmp_path, *words, *(["--anyone"] if anyone else []), ready="power off") as (said, process):
        assert (_ANYONE if anyone else _OWN) in said
        addresses = listening(process.pid)
        assert len(addresses) == 3
        # A server of one client answers whoever comes first, and the others wait for it in vain.
        answered = knock(addresses, 36 if anyone else 200)
        assert bool(answered) == anyone
        assert anyone or len(knock(addresses, 60, uid=0)) >= 1


@pytest.mark.slow
@_OR_ANYONE
def test_tvm_s_rpc_server_with_a_vta(anyone: bool) -> None:
    """It needs that TVM's server makes its socket after its callback, by a name of its own module."""
    start = f"server = vta.serve(vta.get_env(), anyone={anyone}); print(server.port, flush=True)"
    command = [sys.executable, "-c", f"from utvm import vta; {start}; input(); server.terminate()"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        server = Address("", "127.0.0.1", int(process.stdout.readline()))
        assert knock([server], 20) == ({server} if anyone else set())
        assert anyone or knock([server], 20, uid=0) == {server}
        process.communicate("\n", timeout=60)
