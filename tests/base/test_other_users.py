# SPDX-License-Identifier: Apache-2.0
"""Servers of commands do not answer connections of another user of this computer.

With ``--anyone`` they answer, so each test shows that it would notice an answer.
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
from tests.other_user import Address, connect_as_other_user, listening_addresses, needs_root
from tests.session.board_server import serve_board
from utvm.base.process.peer import OwnerOnlySocket
from utvm.errors import ProvisionError
from utvm.farm import client
from utvm.farm.client import coordinator_address, labgrid_python
from utvm.paths import ROOT

pytestmark = needs_root

_OWN, _ANYONE = "only user root of this computer may connect", "ANYONE who reaches it may connect"
_DIGITS = ROOT / "models" / "digits"
# In the daily tests, only the history's pages are also run with --anyone.
_OR_ANYONE = pytest.mark.parametrize("anyone", [False, pytest.param(True, marks=pytest.mark.nightly)])


@contextlib.contextmanager
def _start_command(folder: Path, *words: str, ready: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Start a command; yield its output until it is ready, and its process."""
    command = [sys.executable, "-m", "utvm", *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield until(process, ready), process
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


@pytest.mark.slow
@_OR_ANYONE
def test_pages_of_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anyone: bool) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "utvm.yaml").write_text("boards: [{board: host}]\n")
    write(tmp_path, report_of(1))
    assert inv("history.import", "build").returncode == 0
    options = ["--format", "pages", "--serve", "0", *(["--anyone"] if anyone else [])]
    with _start_command(tmp_path, "history.export", *options, ready="http://") as (output, process):
        assert (_ANYONE if anyone else _OWN) in output
        addresses = listening_addresses(process.pid)
        assert len(addresses) == 1
        assert connect_as_other_user(addresses, 12 if anyone else 200) == ({*addresses} if anyone else set())
        url = re.search(r"http://\S+", output)
        assert url
        with urllib.request.urlopen(url[0], timeout=20) as reply:
            assert b"<html" in reply.read()


@pytest.mark.slow
def test_dashboard(tmp_path: Path) -> None:
    with _start_command(tmp_path, "dashboard", ready="http://") as (output, process):
        assert _OWN in output
        (address,) = listening_addresses(process.pid)
        assert connect_as_other_user({address}, 200) == set()
        with urllib.request.urlopen(f"http://127.0.0.1:{address.port}/", timeout=20) as reply:
            assert b"<html" in reply.read()


@pytest.mark.slow
@_OR_ANYONE
def test_rpc_server_of_a_board(tmp_path: Path, anyone: bool) -> None:
    options = ["--anyone"] if anyone else []
    with serve_board(tmp_path, "--board", "host", *options) as board:
        assert (_ANYONE if anyone else _OWN) in board.output()
        addresses = listening_addresses(board.process.pid)
        server = Address("", board.address, board.port)
        assert connect_as_other_user(addresses, 12 if anyone else 200) == ({server} if anyone else set())
        assert connect_as_other_user(addresses, 20, uid=0) == {server}


def test_external_address_needs_anyone() -> None:
    words = ("board.serve", _DIGITS / "digits_int8.tflite", "--board", "host", "--listen", "0.0.0.0")
    refused = inv(*words)
    assert (refused.returncode, "--listen 0.0.0.0 can be reached from other computers" in refused.stderr) == (2, True)
    assert "--anyone" in refused.stderr


@pytest.mark.slow
@_OR_ANYONE
def test_farm(tmp_path: Path, anyone: bool) -> None:
    labgrid_python(lambda _: None)
    farm = Farm(tmp_path / "farm")
    port = farm.address.rpartition(":")[2]
    words = ("farm.up", "--port", port, *(["--anyone"] if anyone else []), "--virtual", "host")
    with _start_command(tmp_path, *words, ready="boards are offered") as (output, process):
        assert (_ANYONE if anyone else _OWN) in output
        addresses = listening_addresses(process.pid)
        door = Address("", "127.0.0.1", int(port))
        assert connect_as_other_user(addresses, 12 if anyone else 200) == ({door} if anyone else set())
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


def test_coordinator_of_another_user_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_tracker(tmp_path: Path) -> None:
    """TVM's own tracker serves everyone; utvm's needs ``tracker._tracker_server`` to take a listening socket."""
    with _run([sys.executable, "-m", "utvm.tuning.tracker"], "the tracker listens on port") as process:
        addresses = listening_addresses(process.pid)
        assert connect_as_other_user(addresses, 200) == set()
        assert connect_as_other_user(addresses, 20, uid=0) == {*addresses}


@contextlib.contextmanager
def _run(command: list[str], ready: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            until(process, ready)
            yield process
        finally:
            process.kill()


@pytest.mark.nightly  # the daily tests try a farm and the tracker separately
def test_search_on_leased_boards(tmp_path: Path) -> None:
    with two_hosts(tmp_path / "farm", "host,host", "host") as farm:
        words = ("model.tune", str(_DIGITS / "digits.onnx"), "--board", "host", "--log", str(tmp_path / "log"))
        words = (*words, "--in", "farm", "--count", "2", "--tags", "host=desk", "--trials", "6")
        with farm.start(*words) as run:
            until(run, "boards with the key")
            tries = 0
            while run.poll() is None and tries < 2000:
                addresses = listening_addresses(run.pid)
                if addresses:
                    assert connect_as_other_user(addresses, 60) == set()
                    tries += 60
            output, _ = run.communicate(timeout=300)
        assert run.returncode == 0, output
        assert tries >= 200
        assert "outputs are equal bit for bit" in output


@pytest.mark.slow
@_OR_ANYONE
def test_virtual_board(tmp_path: Path, anyone: bool) -> None:
    words = ("board.virtual", "--board", "stm32f746", "--port", "0", "--usb", "cmsis-dap", "--listen", "0")
    with _start_command(tmp_path, *words, *(["--anyone"] if anyone else []), ready="power off") as (output, process):
        assert (_ANYONE if anyone else _OWN) in output
        addresses = listening_addresses(process.pid)
        assert len(addresses) == 3
        # A server of one client answers the first connection; the others wait in vain.
        reached = connect_as_other_user(addresses, 36 if anyone else 200)
        assert bool(reached) == anyone
        assert anyone or len(connect_as_other_user(addresses, 60, uid=0)) >= 1


@pytest.mark.slow
@_OR_ANYONE
def test_rpc_server_with_a_vta(anyone: bool) -> None:
    """Needs TVM's server to create its socket after its callback, by a name of its own module."""
    start = f"server = vta.serve(vta.get_env(), anyone={anyone}); print(server.port, flush=True)"
    command = [sys.executable, "-c", f"from utvm import vta; {start}; input(); server.terminate()"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        server = Address("", "127.0.0.1", int(process.stdout.readline()))
        assert connect_as_other_user([server], 20) == ({server} if anyone else set())
        assert anyone or connect_as_other_user([server], 20, uid=0) == {server}
        process.communicate("\n", timeout=60)
