# SPDX-License-Identifier: Apache-2.0
"""Fake programs and records for virtual machines that do not exist; and a real machine."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.environment.machine.real import Real, missing, real_machine
from utvm.base.storage import lock
from utvm.environment.machine import libvirt
from utvm.environment.machine.libvirt import State
from utvm.environment.machine.settings import Records

Fake = Callable[[str, str], None]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Replace a program by a shell script; only the shell's own tools are found beside it."""
    programs = tmp_path / "fakes"
    programs.mkdir()
    for name in ("env", "sh", "sleep", "cat", "ip", "cp", "mkdir"):
        (programs / name).symlink_to(next(p for p in map(Path, (f"/usr/bin/{name}", f"/bin/{name}")) if p.exists()))
    monkeypatch.setenv("PATH", str(programs))

    def install(name: str, script: str) -> None:
        path = programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return install


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    """Records of a machine for one test, with Vagrant's boxes and libvirt's daemons in folders of the test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(libvirt, "FOLDER", tmp_path / "run")
    monkeypatch.setattr(lock, "_SYSTEM_DIRECTORY", tmp_path)
    return Records("utvm-0123456789", tmp_path / "checkout", tmp_path / "records")


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """A real machine of the real box, in libvirt, started by Vagrant; one for all tests."""
    if reason := missing():
        pytest.skip(f"this machine lacks {reason}")
    with real_machine(tmp_path_factory.mktemp("machine")) as real:
        yield real
    # The tests leave nothing behind.
    assert real.leftovers() == []


@pytest.fixture
def up(machine: Real) -> Real:
    """The machine, running: in the state that the previous test left."""
    if not (machine.is_defined() and machine.state() is State.RUNNING):
        machine.do("vm.up")
    return machine
