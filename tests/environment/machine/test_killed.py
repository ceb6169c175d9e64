# SPDX-License-Identifier: Apache-2.0
"""Commands that are killed at work on a real machine: the next one continues, and nothing is lost."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.environment.machine.real import Real
from tests.processes import descendants
from utvm.environment.machine import libvirt

pytestmark = pytest.mark.slow

Condition = Callable[["subprocess.Popen[bytes]"], bool]


def _kill(real: Real, *words: str, when: Condition, number: signal.Signals = signal.SIGKILL) -> int:
    """Start a command, send it a signal when the condition holds, and return its exit code."""
    command = [sys.executable, "-m", "utvm", *words]
    with subprocess.Popen(command, env=real.environment, stdout=subprocess.DEVNULL) as running:
        # The first start of a checkout builds the box.
        deadline = time.monotonic() + 2400
        while not when(running):
            assert running.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline, "it did not get so far"
            time.sleep(0.02)
        running.send_signal(number)
        return running.wait(300)


def _output_contains(real: Real, word: str) -> Condition:
    # Earlier output must not match.
    real.records.log.write_text("")
    return lambda _: word in real.records.log.read_text()


@pytest.mark.nightly
def test_incomplete_machine_is_removed_by_destroy(machine: Real) -> None:
    # Before the others, which leave a machine: creating one takes longest.
    machine.do("vm.destroy")
    _kill(machine, "vm.up", when=lambda _: machine.is_defined())
    assert "removed: machine" in machine.do("vm.destroy").stdout
    assert machine.leftovers() == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    "number",
    [*(pytest.param(one, marks=pytest.mark.nightly) for one in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL],
    ids=lambda one: str(one.name),
)
def test_killed_start_is_recovered_by_the_next(machine: Real, number: signal.Signals) -> None:
    machine.do("vm.destroy")
    code = _kill(machine, "vm.up", when=lambda _: machine.is_defined(), number=number)
    if number is not signal.SIGKILL:
        assert code == 3
        assert machine.leftovers() == []
        return
    assert "incomplete; ./inv vm.up recreates it" in machine.do("vm.status").stdout
    recovered = machine.do("vm.up")
    assert "an earlier start was interrupted" in recovered.stdout + recovered.stderr
    assert machine.output("id -un") == ["vagrant"]


def test_memory_survives_a_killed_suspend(up: Real) -> None:
    up.output("sh -c 'echo here >/dev/shm/memory'")

    def is_writing(_: object) -> bool:
        return "None" not in libvirt.virsh("domjobinfo", up.records.name)

    _kill(up, "vm.halt", "--suspend", when=is_writing)
    up.do("vm.up")
    assert up.output("cat /dev/shm/memory") == ["here"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "words",
    [("vm.up", "--fresh"), pytest.param(("vm.snapshot", "--restore", "ready"), marks=pytest.mark.nightly)],
    ids="_".join,
)
def test_machine_starts_after_its_restore_was_killed(up: Real, words: tuple[str, ...]) -> None:
    up.output("sh -c 'echo here >~/work; sync'")

    _kill(up, *words, when=lambda running: bool(descendants(running.pid, "snapshot-revert")))
    up.do("vm.up")
    up.do("vm.up", "--fresh")
    assert up.inv("vm.run", "cat ~/work").returncode == 1


@pytest.mark.nightly
def test_killed_snapshot_exists_or_not(up: Real) -> None:
    _kill(up, "vm.snapshot", "--save", "one", when=_output_contains(up, "Snapshotting"))
    up.do("vm.up")
    if "one" not in up.do("vm.snapshot").stdout:
        up.do("vm.snapshot", "--save", "one")
    up.do("vm.snapshot", "--delete", "one")
    assert "one" not in up.do("vm.snapshot").stdout.split()


@pytest.mark.nightly
def test_killed_halt_loses_nothing(up: Real) -> None:
    up.output("sh -c 'echo here >~/work'")
    _kill(up, "vm.halt", when=_output_contains(up, "shutdown of"))
    up.do("vm.up")
    assert up.output("sh -c 'cat ~/work'") == ["here"]
