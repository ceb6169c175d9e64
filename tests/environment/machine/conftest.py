"""Programs that only pretend, and a place for the records of machines that never were."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from utvm import lock
from utvm.environment.machine import daemons
from utvm.environment.machine.records import Records

Fake = Callable[[str, str], None]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Put a shell script into the place of a program; nothing else is found but the shell's own tools."""
    programs = tmp_path / "fakes"
    programs.mkdir()
    for name in ("env", "sh", "sleep", "cat", "ip", "cp", "mkdir"):
        (programs / name).symlink_to(
            next(p for p in map(Path, (f"/usr/bin/{name}", f"/bin/{name}")) if p.exists())
        )
    monkeypatch.setenv("PATH", str(programs))

    def make(name: str, script: str) -> None:
        path = programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return make


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    """The records of a machine of a test's own; Vagrant's boxes are a test's own too, and libvirt's daemons."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(daemons, "FOLDER", tmp_path / "run")
    monkeypatch.setattr(lock, "_SYSTEM_DIRECTORY", tmp_path)
    return Records("utvm-0123456789", tmp_path / "checkout", tmp_path / "records")
