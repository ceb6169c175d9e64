# SPDX-License-Identifier: Apache-2.0
"""Two hosts of a farm through real ssh: an sshd of the test, for this computer under two further names."""

import contextlib
import getpass
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environment.reports import read_report
from tests.farm.farms import Farm, holders, until
from utvm.base.process import free_port
from utvm.cli.farm import parse_host
from utvm.farm.client import labgrid_python
from utvm.paths import ROOT

pytestmark = pytest.mark.slow

_DAEMON = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")


@contextlib.contextmanager
def _ssh_to_two_hosts(folder: Path) -> Iterator[Path]:
    """Start a real sshd; yield a folder with an ssh that knows first and second, both this computer."""
    if _DAEMON is None:
        pytest.skip("sshd is not installed: sudo apt-get install openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # root's sshd needs this folder, which its service normally creates.
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    port, pid = free_port(), folder / "sshd.pid"
    settings = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "user.pub",
        "PidFile": pid,
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "yes",
    }
    (folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    (folder / "config").write_text(
        f"Host first second\nHostName 127.0.0.1\nPort {port}\nUser {getpass.getuser()}\n"
        f"IdentityFile {folder / 'user'}\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
    )
    programs = folder / "bin"
    programs.mkdir()
    config = shlex.quote(str(folder / "config"))
    (programs / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
    (programs / "ssh").chmod(0o755)
    with subprocess.Popen(
        [_DAEMON, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.PIPE, text=True
    ) as daemon:
        try:
            until(daemon, "Server listening", daemon.stderr)
            yield programs
        finally:
            daemon.terminate()


def _port_in(folder: Path) -> str:
    return (folder / "config").read_text().partition("Port ")[2].split()[0]


@pytest.mark.nightly  # It takes a minute, and needs an sshd.
def test_second_host_joins_and_a_third_one_uses_both(tmp_path: Path) -> None:
    labgrid_python(lambda _: None)
    farm = Farm(tmp_path / "farm")
    port = farm.address.rpartition(":")[2]
    (tmp_path / "ssh").mkdir()
    with contextlib.ExitStack() as stack:
        programs = stack.enter_context(_ssh_to_two_hosts(tmp_path / "ssh"))
        with_ssh = {"PATH": f"{programs}:{os.environ['PATH']}"}
        up = stack.enter_context(farm.start("farm.up", "--port", port, "--name", "first", "--virtual", "stm32f746"))
        until(up, "boards are offered")
        words = ("--port", port, "--name", "second", "--address", f"second:{_port_in(tmp_path / 'ssh')}")
        second = stack.enter_context(
            farm.start("farm.export", "--through", "first", *words, "--virtual", "host,host", **farm.hosts, **with_ssh)
        )
        until(second, "boards are offered")
        completed = farm.inv(
            *("hil", "--board", "host", "--suite", "health", "--in", "farm", "--report-dir", tmp_path / "reports"),
            **with_ssh,
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
        lease = read_report(tmp_path / "reports")["environment"]["place"]["lease"]
        assert (lease["place"][:-1], lease["host"]) == ("second-host-", "second")
        # A run that is killed leaves nothing on the host, and the board is free.
        run = stack.enter_context(farm.start("hil", "--board", "host", "--in", "farm", **with_ssh))
        until(run, "leased second-host-")
        run.kill()
        run.wait()
        again = farm.inv("hil", "--board", "host", "--suite", "health", "--in", "farm", **with_ssh)
        assert again.returncode == 0, again.stdout + again.stderr
        # Both remote boards register at a local tracker, through ports that ssh forwards.
        search = ("--board", "host", "--trials", "4", "--log", tmp_path / "log", "--in", "farm", "--count", "2")
        tuned = farm.inv("model.tune", ROOT / "models" / "digits" / "digits.onnx", *search, **with_ssh)
        assert tuned.returncode == 0, tuned.stdout + tuned.stderr
        assert "2 boards with the key" in tuned.stdout
        with farm.client() as client:
            assert not any(holders(client).values())


@pytest.mark.parametrize(
    ("first", "code", "complaint"),
    [("-oProxyCommand=true", 2, "is not a host name"), ("nowhere.invalid", 3, "nowhere.invalid")],
)
def test_invalid_farm_host_is_an_error(tmp_path: Path, first: str, code: int, complaint: str) -> None:
    completed = Farm(tmp_path / "farm").inv("farm.export", f"--through={first}", "--virtual", "host")
    assert (completed.returncode, complaint in completed.stderr) == (code, True), completed.stderr


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("desk", "desk", 22),
        ("desk:2222", "desk", 2222),
        ("10.0.0.1", "10.0.0.1", 22),
        ("::1", "::1", 22),
        ("[fe80::2]:2222", "fe80::2", 2222),
    ],
)
def test_address_may_have_a_port(address: str, host: str, port: int) -> None:
    parsed = parse_host("", address)
    assert (parsed.address, parsed.port) == (host, port)


@pytest.mark.parametrize("address", ["desk:x", "desk:0", "desk:65536", "[::1]:x"])
def test_invalid_port_of_an_address_is_refused(tmp_path: Path, address: str) -> None:
    completed = Farm(tmp_path / "farm").inv("farm.export", "--address", address, "--virtual", "host")
    assert (
        completed.returncode == 2 and f"error: --address {address}: its port is not from 1 to 65535" in completed.stderr
    )
