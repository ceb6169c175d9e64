"""A real machine of the real box, in libvirt, started by Vagrant; one for all tests."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.environment.machine.real import Real, missing, real_machine
from utvm.environment.machine import daemons, libvirt
from utvm.environment.machine.libvirt import State

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    if lacking := missing():
        pytest.skip(f"this machine lacks {lacking}")
    with real_machine(tmp_path_factory.mktemp("machine")) as real:
        yield real
    # Nothing of it is left, whatever the tests did.
    assert real.left() == []


@pytest.fixture
def up(machine: Real) -> Real:
    """The machine, running."""
    machine.do("vm.up")
    return machine


def test_it_has_the_checkout_and_the_environment(up: Real) -> None:
    assert up.said("sh -c 'pwd; id -un; test -w . && head -1 README.md; echo $UTVM_VENV'") == [
        *("/utvm", "vagrant", "# utvm", "/opt/utvm"),
    ]
    assert up.said("sh -c 'ls -d .git .venv build 2>/dev/null; true'") == []


def test_a_command_s_output_and_exit_code_are_its_own(up: Real) -> None:
    done = up.inv("vm.run", "sh -c 'echo out; echo err >&2; exit 7'")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    # What ssh ends with when the connection breaks is a command's own code all the same.
    assert up.inv("vm.run", "sh -c 'exit 255'").returncode == 255


def test_words_reach_it_as_they_are(up: Real) -> None:
    assert up.said(r"""printf '%s\n' 'two words' '$HOME' '"' '*'""") == ["two words", "$HOME", '"', "*"]


def test_it_reaches_this_computer_and_nothing_beyond(up: Real) -> None:
    assert not any(line.startswith("default") for line in up.said("ip route"))
    assert up.inv("vm.run", "ping -c 1 -W 2 192.0.2.1").returncode != 0


def test_its_clock_is_ours(up: Real) -> None:
    before = time.time()
    (said,) = up.said("date +%s.%N")
    assert before - 1 < float(said) < time.time() + 1


def test_its_keys_are_its_own(up: Real) -> None:
    well_known = (Path("vm") / "vagrant.pub").read_text().split()[1]
    (authorised,) = up.said("cat /home/vagrant/.ssh/authorized_keys")
    assert authorised.split()[1] != well_known
    assert (up.records.key.stat().st_mode & 0o077) == 0
    assert up.records.known_hosts.read_text().startswith(up.records.name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda one: str(one.name))
def test_what_runs_in_it_ends_with_us(up: Real, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "utvm.cli", "vm.run", "sh -c 'echo ready; exec sleep 98765'"],
        env=up.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(number)
        assert running.wait(60) == (3 if number != signal.SIGKILL else -signal.SIGKILL)
    deadline = time.monotonic() + 60
    while up.inv("vm.run", "pgrep -f 'sleep 9876[5]'").returncode == 0:
        assert time.monotonic() < deadline, "it still runs in the guest"


def test_suspended_it_goes_on_where_it_was(up: Real) -> None:
    (boot,) = up.said("sh -c 'echo here >/dev/shm/memory; cat /proc/sys/kernel/random/boot_id'")
    up.do("vm.suspend")
    assert up.state() is State.SUSPENDED
    up.do("vm.up")
    assert up.said("cat /dev/shm/memory /proc/sys/kernel/random/boot_id") == ["here", boot]


def test_a_second_up_changes_nothing_but_the_checkout(up: Real) -> None:
    """What the guest has in the place of the checkout's is kept aside, and what it built stays."""
    up.said("sh -c 'echo mine >/dev/shm/memory; echo mine >README.md; mkdir -p build; echo built >build/report'")
    up.do("vm.up")
    assert up.said("sh -c 'head -1 README.md; cat /dev/shm/memory build/report ~/replaced/README.md'") == [
        *("# utvm", "mine", "built", "mine"),
    ]


def test_files_come_out_of_it(up: Real, tmp_path: Path) -> None:
    up.said("sh -c 'mkdir -p build/reports/sub; echo 1 >build/reports/a; echo 2 >build/reports/sub/b'")
    up.machine.fetch("build/reports/", tmp_path / "reports")
    assert {path.name: path.read_text() for path in (tmp_path / "reports").rglob("?")} == {"a": "1\n", "b": "2\n"}


def test_states_are_kept_by_name(up: Real) -> None:
    up.said("sh -c 'echo then >~/work'")
    up.do("vm.snapshot", "--save", "then")
    up.said("sh -c 'echo now >~/work'")
    assert "then" in up.do("vm.snapshot").stdout
    assert up.inv("vm.snapshot", "--save", "then").returncode == 2
    assert up.inv("vm.snapshot", "--delete", "ready").returncode == 2
    assert up.inv("vm.snapshot", "--restore", "never").returncode == 2
    up.do("vm.snapshot", "--restore", "then")
    assert up.said("sh -c 'cat ~/work'") == ["then"]
    up.do("vm.snapshot", "--delete", "then")
    assert "then" not in up.do("vm.snapshot").stdout


def test_work_on_its_disk_outlives_a_halt_and_ends_with_fresh(up: Real) -> None:
    up.said("sh -c 'echo work >~/work; sync'")
    up.do("vm.halt")
    assert up.state() is State.OFF
    assert up.inv("vm.run", "true").returncode == 3
    up.do("vm.up")
    assert up.said("sh -c 'cat ~/work'") == ["work"]
    up.do("vm.up", "--fresh")
    assert up.inv("vm.run", "cat ~/work").returncode == 1
    # As new, it may be halted and set back.
    before = time.time()
    (said,) = up.said("date +%s")
    assert int(said) >= int(before) - 1


def test_whoever_listens_at_a_plug_is_plugged_in(up: Real) -> None:
    """QEMU speaks first (usbredir protocol, "usb_redir_hello": type 0 and a version)."""
    with socket.create_server(("127.0.0.1", up.machine.plugs[0].port)) as listener:
        listener.settimeout(30)
        called, _ = listener.accept()
        with called:
            called.settimeout(30)
            hello = called.recv(4096)
    assert hello[:4] == bytes(4)
    assert b"qemu" in hello.lower()


def test_what_nobody_can_use_any_more_is_named_and_removed(up: Real, tmp_path: Path) -> None:
    orphan = tmp_path / "orphan.xml"
    orphan.write_text(
        "<domain type='qemu'><name>utvm-fffffffff0</name><memory>32768</memory>"
        f"<description>utvm: checkout /nowhere, records {tmp_path}/gone</description>"
        "<os><type arch='x86_64'>hvm</type></os></domain>"
    )
    libvirt.virsh("define", str(orphan))
    try:
        assert "machine utvm-fffffffff0: its records are gone" in up.do("vm.status").stdout
    finally:
        libvirt.virsh("undefine", "utvm-fffffffff0")


def test_nothing_of_ours_listens_beyond_this_computer(up: Real) -> None:
    """But on the network that only the machine is in."""
    listening = subprocess.run(["ss", "-Hltunp"], capture_output=True, text=True, check=True).stdout
    ours = [line.split()[4] for line in listening.splitlines() if "qemu" in line or "dnsmasq" in line]
    network = libvirt.network_address().rpartition(".")[0]
    assert [place for place in ours if not place.startswith((network, "127.", "[::1]", "0.0.0.0%virbr"))] == []


def test_two_at_once_do_not_meet(up: Real) -> None:
    words = [sys.executable, "-m", "utvm.cli", "vm.snapshot", "--save", "one"]
    with subprocess.Popen(words, env=up.environment, stdout=subprocess.DEVNULL) as first:
        # It has the lock once Vagrant is at work.
        deadline = time.monotonic() + 60
        while "Snapshotting" not in up.records.log.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        second = up.inv("vm.halt")
        assert first.wait(120) == 0
    assert second.returncode == 3
    assert "another command is at work on it" in second.stderr
    up.do("vm.snapshot", "--delete", "one")


def test_the_daemons_stay_with_the_machine() -> None:
    """They are only asked about: where systemd runs them they are not ours."""
    with contextlib.suppress(KeyError):
        os.kill(daemons.running()["libvirtd"], 0)


def test_destroyed_nothing_is_left_and_a_killed_start_neither(machine: Real) -> None:
    machine.do("vm.destroy")
    assert machine.left() == []
    with subprocess.Popen(machine.up_words, env=machine.environment, stdout=subprocess.DEVNULL) as starting:
        deadline = time.monotonic() + 300
        while not machine.defined():
            assert starting.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline, "there is no machine yet"
            time.sleep(0.2)
        starting.kill()
    assert "half made" in inv("vm.status", **machine.own).stdout
    assert "removed: machine" in machine.do("vm.destroy").stdout
    assert machine.left() == []
