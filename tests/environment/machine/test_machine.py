# SPDX-License-Identifier: Apache-2.0
"""A real machine of the real box, in libvirt, started by Vagrant; one for all tests."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.running import inv
from tests.environment.machine.real import Real
from tests.environment.reports import own_project, read_report, without_time_and_place
from tests.processes import descendants
from utvm import boards
from utvm.environment.machine import libvirt
from utvm.environment.machine.libvirt import State
from utvm.environment.machine.settings import UsbFilter
from utvm.paths import ROOT
from utvm.probe.virtual import UsbProbe, start_virtual

pytestmark = pytest.mark.slow


def test_machine_has_checkout_and_environment(up: Real) -> None:
    assert up.output("sh -c 'pwd; id -un; test -w . && head -1 README.md; echo $UTVM_VENV'") == [
        *("/utvm", "vagrant", "# utvm", "/opt/utvm")
    ]
    assert up.output("sh -c 'ls -d .git .venv build 2>/dev/null; true'") == []


def test_output_and_exit_code_of_a_command(up: Real) -> None:
    completed = up.inv("vm.run", "sh -c 'echo out; echo err >&2; exit 7'")
    assert (completed.returncode, completed.stdout, completed.stderr) == (7, "out\n", "err\n")
    # A command may exit with 255, which is also ssh's code for a broken connection.
    assert up.inv("vm.run", "sh -c 'exit 255'").returncode == 255


def test_arguments_are_passed_unchanged(up: Real) -> None:
    assert up.output(r"""printf '%s\n' 'two words' '$HOME' '"' '*'""") == ["two words", "$HOME", '"', "*"]


def test_machine_has_no_external_network(up: Real) -> None:
    assert not any(line.startswith("default") for line in up.output("ip route"))
    assert up.inv("vm.run", "ping -c 1 -W 2 192.0.2.1").returncode != 0


def test_clock_is_synchronised(up: Real) -> None:
    before = time.time()
    (output,) = up.output("date +%s.%N")
    assert before - 1 < float(output) < time.time() + 1


def test_machine_has_its_own_keys(up: Real) -> None:
    well_known = (ROOT / "provision" / "machine" / "vagrant.pub").read_text().split()[1]
    (authorised,) = up.output("cat /home/vagrant/.ssh/authorized_keys")
    assert authorised.split()[1] != well_known
    assert (up.records.key.stat().st_mode & 0o077) == 0
    assert up.records.known_hosts.read_text().startswith(up.records.name)


@pytest.mark.nightly  # the daily test uses a container
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda one: str(one.name))
def test_command_in_the_machine_ends_with_ours(up: Real, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "utvm", "vm.run", "sh -c 'echo ready; exec sleep 98765'"],
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


def test_shell_has_checkout_and_control_keys(up: Real) -> None:
    terminal, end = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "utvm", "vm.run"], env=up.environment, stdin=end, stdout=end) as shell:
        os.close(end)
        try:
            os.write(terminal, b"sh -c 'pwd; exec sleep 98765'\r")
            _read_until(terminal, b"\r/utvm\r")
            # Ctrl-C ends the guest's sleep, not our command.
            os.write(terminal, b"\x03")
            _read_until(terminal, b"$ ")
            os.write(terminal, b"exit 7\r")
            assert shell.wait(60) == 7
        finally:
            os.close(terminal)
            shell.kill()


def _read_until(terminal: int, words: bytes) -> None:
    output = b""
    while words not in output:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, output
        output += os.read(terminal, 4096)


@pytest.mark.nightly  # the daily test_killed suspends, too
def test_suspended_machine_resumes(up: Real) -> None:
    (boot,) = up.output("sh -c 'echo here >/dev/shm/memory; cat /proc/sys/kernel/random/boot_id'")
    up.do("vm.halt", "--suspend")
    assert up.state() is State.SUSPENDED
    up.do("vm.up")
    assert up.output("cat /dev/shm/memory /proc/sys/kernel/random/boot_id") == ["here", boot]


@pytest.mark.nightly
def test_fresh_discards_suspended_memory(up: Real) -> None:
    up.output("sh -c 'echo here >/dev/shm/memory'")
    up.do("vm.halt", "--suspend")
    up.do("vm.up", "--fresh")
    assert up.inv("vm.run", "cat /dev/shm/memory").returncode == 1
    libvirt.cut_power(up.records.name)
    assert up.state() is State.OFF
    # Boots, which takes longer.
    up.do("vm.up", "--fresh")


def test_second_up_only_updates_the_checkout(up: Real) -> None:
    """A guest's file that the checkout replaces is moved aside; build outputs stay."""
    up.output("sh -c 'echo mine >/dev/shm/memory; echo mine >README.md; mkdir -p build; echo built >build/report'")
    up.do("vm.up")
    assert up.output("sh -c 'head -1 README.md; cat /dev/shm/memory build/report ~/replaced/README.md'") == [
        *("# utvm", "mine", "built", "mine")
    ]


def test_files_are_fetched(up: Real, tmp_path: Path) -> None:
    up.output("sh -c 'mkdir -p build/reports/sub; echo 1 >build/reports/a; echo 2 >build/reports/sub/b'")
    up.machine.guest.fetch("build/reports/", tmp_path / "reports")
    assert {path.name: path.read_text() for path in (tmp_path / "reports").rglob("?")} == {"a": "1\n", "b": "2\n"}


@pytest.mark.nightly
def test_snapshots_have_names(up: Real) -> None:
    up.output("sh -c 'echo then >~/work'")
    up.do("vm.snapshot", "--save", "then")
    up.output("sh -c 'echo now >~/work'")
    assert "then" in up.do("vm.snapshot").stdout
    assert up.inv("vm.snapshot", "--save", "then").returncode == 2
    assert up.inv("vm.snapshot", "--delete", "ready").returncode == 2
    assert up.inv("vm.snapshot", "--restore", "never").returncode == 2
    up.do("vm.snapshot", "--restore", "then")
    assert up.output("sh -c 'cat ~/work'") == ["then"]
    up.do("vm.snapshot", "--delete", "then")
    assert "then" not in up.do("vm.snapshot").stdout


@pytest.mark.nightly
def test_disk_survives_halt_but_not_fresh(up: Real) -> None:
    up.output("sh -c 'echo work >~/work; sync'")
    up.do("vm.halt")
    assert up.state() is State.OFF
    assert up.inv("vm.run", "true").returncode == 3
    up.do("vm.up")
    assert up.output("sh -c 'cat ~/work'") == ["work"]
    up.do("vm.up", "--fresh")
    assert up.inv("vm.run", "cat ~/work").returncode == 1


def test_server_at_a_usb_plug_is_connected(up: Real) -> None:
    """QEMU sends first (usbredir protocol, "usb_redir_hello": type 0 and a version)."""
    with socket.create_server(("127.0.0.1", up.machine.plugs[0].port)) as listener:
        listener.settimeout(30)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(30)
            hello = connection.recv(4096)
    assert hello[:4] == bytes(4)
    assert b"qemu" in hello.lower()


def test_missing_probe_is_not_lent(up: Real) -> None:
    """libvirt accepts the request, and reports the missing device, or the missing USB."""
    absent = UsbFilter("0x0483", "0x374b", "NONE", bus=99, device=99)
    message = r"Did not find USB device|/sys/bus/usb/devices"
    with pytest.raises(libvirt.LibvirtError, match=message), libvirt.attached_device(up.records.name, absent):
        pass


def _define_orphan(folder: Path) -> str:
    """Define a machine in libvirt whose records are gone; return its name."""
    name = "utvm-fffffffff0"
    definition = folder / "orphan.xml"
    definition.write_text(
        f"<domain type='qemu'><name>{name}</name><memory>32768</memory>"
        f"<description>utvm: checkout /nowhere, records {folder}/gone</description>"
        "<os><type arch='x86_64'>hvm</type></os></domain>"
    )
    libvirt.virsh("define", str(definition))
    return name


def test_orphaned_machine_is_named(up: Real, tmp_path: Path) -> None:
    orphan = _define_orphan(tmp_path)
    try:
        assert f"machine {orphan}: its records are gone" in up.do("vm.status").stdout
    finally:
        libvirt.virsh("undefine", orphan)


def test_no_service_listens_externally(up: Real) -> None:
    """Services may listen on the machine's own network."""
    listening = subprocess.run(["ss", "-Hltunp"], capture_output=True, text=True, check=True).stdout
    addresses = [line.split()[4] for line in listening.splitlines() if "qemu" in line or "dnsmasq" in line]
    network = libvirt.network_address().rpartition(".")[0]
    assert [
        address for address in addresses if not address.startswith((network, "127.", "[::1]", "0.0.0.0%virbr"))
    ] == []


def test_concurrent_commands_are_locked_out(up: Real) -> None:
    words = [sys.executable, "-m", "utvm", "vm.snapshot", "--save", "one"]
    before = up.records.log.read_text().count("Snapshotting")
    with subprocess.Popen(words, env=up.environment, stdout=subprocess.DEVNULL) as first:
        # The first command has the lock when Vagrant works, and keeps it while it is stopped.
        deadline = time.monotonic() + 120
        while up.records.log.read_text().count("Snapshotting") == before and time.monotonic() < deadline:
            time.sleep(0.01)
        first.send_signal(signal.SIGSTOP)
        try:
            second = up.inv("vm.halt")
        finally:
            first.send_signal(signal.SIGCONT)
        assert first.wait(120) == 0
    assert second.returncode == 3
    assert "another command uses it" in second.stderr
    up.do("vm.snapshot", "--delete", "one")


@pytest.mark.nightly
def test_vm_usb_gives_the_same_report_as_a_container(
    up: Real, engine: str, build_output: dict[str, Any], tmp_path: Path
) -> None:
    """A container gets no USB."""
    vm_report = _run_through_usb(up, "digits", tmp_path / "vm")
    words = ("hil", "--board=stm32f746", "--suite=digits", "--in=docker", "--virtual")
    completed = inv(*words, "--report-dir", tmp_path / "docker", timeout=1800, DOCKER_HOST=engine)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    container_report = read_report(tmp_path / "docker")
    assert vm_report["environment"]["place"]["environment"] == build_output["environment"]
    board = container_report["board"]
    assert {key for key in board if board[key] != vm_report["board"][key]} == {"probe"}
    vm_report["board"]["probe"] = board["probe"]
    assert without_time_and_place(vm_report) == without_time_and_place(container_report)
    assert {model["name"] for model in container_report["models"]} == {"digits", "digits_int8", "digits_int8_graph"}


def _run_through_usb(up: Real, suite: str, reports: Path) -> dict[str, Any]:
    words = ("hil", "--board=stm32f746", "--in=vm", "--usb=st-link", f"--suite={suite}", "--report-dir", reports)
    completed = up.do(*words)
    assert "VIRTUAL board, a software model, virtual st-link at USB 1-" in " ".join(completed.stdout.split())
    report = read_report(reports)
    place = report["environment"]["place"]
    assert (place["kind"], place["frozen"]) == ("vm", True)
    return report


@pytest.mark.nightly
def test_box_is_tested_with_a_probe_chosen_by_serial(up: Real, tmp_path: Path) -> None:
    before = {domain.name for domain in libvirt.domains()}
    words = ("--usb", "st-link", "--serial", "OUTSIDE-1", "--suite", "health")
    output = up.do("vm.test", "--board", "stm32f746", *words, "--report-dir", tmp_path / "reports").stdout
    assert "serial OUTSIDE-1" in " ".join(output.split())
    report = read_report(tmp_path / "reports")
    assert (report["board"]["serial"], report["environment"]["place"]["kind"]) == ("OUTSIDE-1", "vm")
    # The test used another machine than this checkout's, and removed it.
    assert output.endswith("the machine is removed\n")
    assert {domain.name for domain in libvirt.domains()} == before
    assert not list((up.records.folder.parent.parent / "test" / "machines").glob("*"))


@pytest.mark.nightly
def test_nightly_run_has_boards_in_the_machine(up: Real, tmp_path: Path) -> None:
    entry = {"board": "host", "suites": ["health"], "place": "vm"}
    (tmp_path / "some.yaml").write_text(yaml.safe_dump({"boards": [entry]}))
    completed = up.do("nightly", "--config", tmp_path / "some.yaml", "--report-dir", tmp_path / "reports")
    assert "PROCESS host in vm: 1 passed" in completed.stdout
    latest = tmp_path / "reports" / "latest"
    (board,) = json.loads((latest / "nightly.json").read_text())["boards"]
    place = json.loads((latest / board["report"]).read_text())["environment"]["place"]
    assert (place["kind"], place["frozen"]) == ("vm", True)


@pytest.mark.nightly  # the daily test uses a container: an emulated CPU takes minutes to load TVM
def test_own_suites_run_in_the_machine(up: Real, tmp_path: Path) -> None:
    project = own_project(tmp_path)
    completed = inv("hil", "--in", "vm", timeout=1800, cwd=project, **up.variables)
    assert completed.returncode == 1, completed.stdout + completed.stderr
    report = read_report(project / "build" / "reports")
    assert [test["outcome"] for test in report["tests"]] == ["passed", "failed"]
    assert report["environment"]["place"]["kind"] == "vm"


def _start_in_machine(up: Real, *words: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "utvm", "hil", "--board=stm32f746", "--in=vm", *map(str, words)]
    return subprocess.Popen(command, env=up.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _wait_for(running: "subprocess.Popen[str]", words: str) -> None:
    assert running.stdout is not None
    lines = []
    for line in running.stdout:
        lines.append(line)
        if words in line:
            return
    raise AssertionError(f"it ended without saying {words!r}: {''.join(lines)}")


@pytest.mark.nightly
def test_run_after_an_unplugged_probe_works(up: Real, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    with _start_in_machine(up, "--usb=st-link", "--suite=memory", "--report-dir", reports) as running:
        _wait_for(running, "[ 5/")
        (board,) = descendants(running.pid, "utvm.virtual")
        board.send_signal(signal.SIGUSR2)
        assert running.stdout is not None
        output = running.stdout.read()
        assert running.wait() == 3, output
    report = read_report(reports)
    assert report["verdict"] == "infrastructure"
    failures = [test for test in report["tests"] if test["outcome"] == "infrastructure"]
    assert any("unplugged" in test["message"] or "is gone" in test["message"] for test in failures), failures
    assert not [test for test in report["tests"] if test["outcome"] == "failed"]
    # The guest's kernel finds the probe, its OpenOCD flashes the virtual board.
    _run_through_usb(up, "health", reports)


@pytest.mark.nightly
def test_serial_chooses_between_equal_probes(up: Real, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        for serial, plug in zip(("ONE", "OTHER"), up.machine.plugs, strict=True):
            usb = UsbProbe("st-link", str(plug.port), libvirt.qemu_user())
            stack.enter_context(start_virtual(boards.load("stm32f746"), tmp_path / serial, serial=serial, usb=usb))
        words = ("hil", "--board=stm32f746", "--in=vm", "--suite=health", "--report-dir", tmp_path / "reports")
        completed = up.inv(*words, "--serial=OTHER")
        assert completed.returncode == 0, completed.stdout + completed.stderr
        report = read_report(tmp_path / "reports")
        assert (report["board"]["kind"], report["board"]["serial"]) == ("virtual", "OTHER")
        # The boards show which one was used: the other's flash has never been written.
        assert _flash_word(up, "ONE") == "0xffffffff"
        assert _flash_word(up, "OTHER") != "0xffffffff"


def _flash_word(up: Real, serial: str) -> str:
    """Read the first word of a board's flash with the guest's OpenOCD."""
    commands = f"adapter serial {serial}; init; halt; echo word=[read_memory 0x08000000 32 1]; shutdown"
    completed = up.do("vm.run", f"openocd -f interface/stlink.cfg -f target/stm32f7x.cfg -c '{commands}'")
    match = re.search(r"word=(0x[0-9a-f]+)", completed.stdout + completed.stderr)
    assert match, completed.stdout + completed.stderr
    return match[1]


@pytest.mark.nightly
def test_interrupted_run_inside_is_reported_and_cleaned_up(up: Real, tmp_path: Path) -> None:
    with _start_in_machine(up, "--usb=st-link", "--suite=memory", "--report-dir", tmp_path) as running:
        _wait_for(running, "[ 2/")
        started = descendants(running.pid, "utvm.virtual")
        assert len(started) == 1
        running.send_signal(signal.SIGINT)
        assert running.stdout is not None
        running.stdout.read()
        assert running.wait() == 3
    assert read_report(tmp_path)["verdict"] == "interrupted"
    assert not any(process.is_running() for process in started)
    assert up.output("sh -c 'ls -d /home/vagrant/run-* 2>/dev/null; pgrep -x openocd; true'") == []


def test_destroy_removes_everything_and_orphans(up: Real, tmp_path: Path) -> None:
    orphan = _define_orphan(tmp_path)
    assert f"removed: machine {orphan}" in up.do("vm.destroy").stdout
    assert up.leftovers() == []
