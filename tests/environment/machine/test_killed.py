# SPDX-License-Identifier: Apache-2.0
"""Commands that are killed while they are at work on a real machine: the next one goes on, and nothing is lost."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.environment.machine.real import Real
from tests.processes import below
from utvm.environment.machine import libvirt

pytestmark = pytest.mark.slow

When = Callable[["subprocess.Popen[bytes]"], bool]


def _killed(real: Real, *words: str, when: When, by: signal.Signals = signal.SIGKILL) -> int:
    """Start a command, send it a signal once it has got so far, and return its exit code."""
    command = [sys.executable, "-m", "utvm", *words]
    with subprocess.Popen(command, env=real.environment, stdout=subprocess.DEVNULL) as running:
        # The first start of a checkout makes the box.
        deadline = time.monotonic() + 2400
        while not when(running):
            assert running.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline, "it did not get so far"
            time.sleep(0.02)
        running.send_signal(by)
        return running.wait(300)


def _vagrant_says(real: Real, word: str) -> When:
    # What it said last must not be taken for that.
    real.records.log.write_text("")
    return lambda _: word in real.records.log.read_text()


@pytest.mark.nightly
def test_a_half_made_machine_is_removed_when_that_is_asked_for(machine: Real) -> None:
    # Before the others: they leave a machine, and making one takes longest.
    machine.do("vm.destroy")
    _killed(machine, "vm.up", when=lambda _: machine.defined())
    assert "removed: machine" in machine.do("vm.destroy").stdout
    assert machine.left() == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    "by",
    [*(pytest.param(one, marks=pytest.mark.nightly) for one in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL],
    ids=lambda one: str(one.name),
)
def test_killed_start_is_recovered_by_the_next(machine: Real, by: signal.Signals) -> None:
    machine.do("vm.destroy")
    code = _killed(machine, "vm.up", when=lambda _: machine.defined(), by=by)
    if by is not signal.SIGKILL:
        assert code == 3
        assert machine.left() == []
        return
    assert "incomplete; ./inv vm.up recreates it" in machine.do("vm.status").stdout
    recovered = machine.do("vm.up")
    assert "an earlier start was interrupted" in recovered.stdout + recovered.stderr
    assert machine.said("id -un") == ["vagrant"]


def test_a_suspension_whose_command_is_killed_keeps_the_memory(up: Real) -> None:
    up.said("sh -c 'echo here >/dev/shm/memory'")

    def writing(_: object) -> bool:
        return "None" not in libvirt.virsh("domjobinfo", up.records.name)

    _killed(up, "vm.halt", "--suspend", when=writing)
    up.do("vm.up")
    assert up.said("cat /dev/shm/memory") == ["here"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "words",
    [("vm.up", "--fresh"), pytest.param(("vm.snapshot", "--restore", "ready"), marks=pytest.mark.nightly)],
    ids="_".join,
)
def test_machine_starts_after_its_restore_was_killed(up: Real, words: tuple[str, ...]) -> None:
    up.said("sh -c 'echo here >~/work; sync'")

    _killed(up, *words, when=lambda running: bool(below(running.pid, "snapshot-revert")))
    up.do("vm.up")
    up.do("vm.up", "--fresh")
    assert up.inv("vm.run", "cat ~/work").returncode == 1


@pytest.mark.nightly
def test_a_snapshot_whose_command_is_killed_is_there_or_not(up: Real) -> None:
    _killed(up, "vm.snapshot", "--save", "one", when=_vagrant_says(up, "Snapshotting"))
    up.do("vm.up")
    if "one" not in up.do("vm.snapshot").stdout:
        up.do("vm.snapshot", "--save", "one")
    up.do("vm.snapshot", "--delete", "one")
    assert "one" not in up.do("vm.snapshot").stdout.split()


@pytest.mark.nightly
def test_a_halt_whose_command_is_killed_loses_nothing(up: Real) -> None:
    up.said("sh -c 'echo here >~/work'")
    _killed(up, "vm.halt", when=_vagrant_says(up, "shutdown of"))
    up.do("vm.up")
    assert up.said("sh -c 'cat ~/work'") == ["here"]
