# SPDX-License-Identifier: Apache-2.0
"""Owners of containers: gone only when that is certain."""

import dataclasses
import subprocess
import sys

import pytest

from utvm.environment.engine import Owner, current_owner

_WHO = "from utvm.environment.engine import current_owner; print(current_owner().label, flush=True); input()"


def test_another_process_is_gone_when_it_has_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        owner = Owner.of(other.stdout.readline())
        assert owner is not None
        assert owner.process == other.pid
        assert not owner.is_gone(running=True)
        other.stdin.close()
        other.wait(60)
    assert owner.is_gone(running=True)


def test_a_number_that_is_used_again_is_another_process() -> None:
    assert not current_owner().is_gone(running=True)
    assert dataclasses.replace(current_owner(), started="1").is_gone(running=True)


@pytest.mark.parametrize(
    "elsewhere", [{"host": "another"}, {"user": 4321}, {"namespace": "pid:[1]"}], ids=lambda one: next(iter(one))
)
@pytest.mark.parametrize("running", [False, True])
def test_nobody_judges_of_elsewhere(elsewhere: dict[str, str], running: bool) -> None:
    """A process number of another machine, or in a container with the engine's socket, says nothing here."""
    owner = dataclasses.replace(current_owner(), started="1", **elsewhere)  # type: ignore[arg-type]
    assert not owner.is_gone(running)


def test_earlier_boot_leaves_no_process_of_this_machine() -> None:
    owner = dataclasses.replace(current_owner(), boot="another")
    assert owner.is_gone(running=False)
    assert not owner.is_gone(running=True)


def test_a_label_is_read_as_it_was_written() -> None:
    assert Owner.of(current_owner().label) == current_owner()


@pytest.mark.parametrize("label", ["", "1234", "a b c d e f", "host x boot pid:[1] 12 34"])
def test_a_label_of_others_says_nothing(label: str) -> None:
    assert Owner.of(label) is None
