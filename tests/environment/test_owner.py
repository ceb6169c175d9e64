# SPDX-License-Identifier: Apache-2.0
"""Owners of containers: an owner is gone only if that is certain."""

import dataclasses
import subprocess
import sys

import pytest

from tests.processes import may_make_mounts
from utvm.environment.engine import Owner, current_owner

_PRINT_OWNER = "from utvm.environment.engine import current_owner; print(current_owner().label, flush=True); input()"


def test_ended_process_is_gone() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PRINT_OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        owner = Owner.of(process.stdout.readline())
        assert owner is not None
        assert owner.process == process.pid
        assert not owner.is_gone(running=True)
        process.stdin.close()
        process.wait(60)
    assert owner.is_gone(running=True)


def test_reused_process_id_is_another_process() -> None:
    assert not current_owner().is_gone(running=True)
    assert dataclasses.replace(current_owner(), started="1").is_gone(running=True)


@pytest.mark.parametrize(
    "elsewhere", [{"host": "another"}, {"user": 4321}, {"namespace": "pid:[1]"}], ids=lambda field: next(iter(field))
)
@pytest.mark.parametrize("running", [False, True])
def test_owner_elsewhere_is_never_gone(elsewhere: dict[str, str], running: bool) -> None:
    """A process id of another machine or namespace has no meaning here."""
    owner = dataclasses.replace(current_owner(), started="1", **elsewhere)  # type: ignore[arg-type]
    assert not owner.is_gone(running)


def test_stopped_owner_of_an_earlier_boot_is_gone() -> None:
    owner = dataclasses.replace(current_owner(), boot="another")
    assert owner.is_gone(running=False)
    assert not owner.is_gone(running=True)


def test_label_is_read_back_unchanged() -> None:
    assert Owner.of(current_owner().label) == current_owner()


@pytest.mark.skipif(not may_make_mounts(), reason="only root may hide /proc")
def test_owner_on_a_system_without_proc_is_never_gone() -> None:
    """An empty /proc stands in for macOS."""
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    command = [*hide, sys.executable, "-c", _PRINT_OWNER]
    completed = subprocess.run(command, check=False, input="\n", capture_output=True, text=True)
    owner = Owner.of(completed.stdout)
    assert owner is not None, completed.stderr
    assert not owner.is_gone(running=True)


@pytest.mark.parametrize("label", ["", "1234", "a b c d e f", "host x boot pid:[1] 12 34"])
def test_foreign_label_is_ignored(label: str) -> None:
    assert Owner.of(label) is None
