# SPDX-License-Identifier: Apache-2.0
"""An error during a build is one clear message, and leaves nothing behind."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.environment.lock_maker import files_in
from utvm.environment.locked import temporary_root
from utvm.errors import ProvisionError
from utvm.paths import PROVISION


def test_missing_engine_is_an_error_before_the_build() -> None:
    completed = inv("docker.build", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert completed.returncode == 3
    assert "no Docker engine answers at unix:///nowhere/docker.sock" in completed.stderr
    assert "DOCKER_HOST" in completed.stderr


_NO_ENGINE = "unix:///nowhere/docker.sock"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--in", "docker"), 3, "no Docker engine answers at unix:///nowhere/docker.sock"),
        (("--in", "moon"), 2, "unknown location 'moon'"),
        (("--in", "docker", "--suite", "no-such"), 2, "there is no suite 'no-such'"),
        (("--in", "docker", "--virtual"), 2, "host is a process"),
    ],
)
def test_unavailable_location_is_an_error_without_report(
    words: tuple[str, ...], code: int, message: str, tmp_path: Path
) -> None:
    completed = inv("hil", "--board", "host", *words, "--report-dir", tmp_path / "reports", DOCKER_HOST=_NO_ENGINE)
    assert (completed.returncode, message in completed.stderr) == (code, True), completed.stderr
    assert not list(tmp_path.rglob("report.json"))


def test_incomplete_archive_is_named(tmp_path: Path) -> None:
    completed = inv("docker.build", "--export-only", "--mirror", tmp_path / "empty", XDG_CACHE_HOME=str(tmp_path))
    assert completed.returncode == 3
    assert f"is not in {tmp_path}/empty" in completed.stderr
    assert files_in(tmp_path) == []


@pytest.mark.nightly
@pytest.mark.slow
def test_locks_of_a_killed_command_stay(tmp_path: Path) -> None:
    """A fake uv writes half of a file and kills the command; the Debian packages are resolved before."""
    uv = tmp_path / "uv"
    write = 'for word; do case $word in --output-file=*) echo half >"${word#*=}"; esac; done'
    uv.write_text(f"#!/bin/sh\n{write}\nkill -9 $PPID\n")
    uv.chmod(0o755)
    before = {path: path.read_bytes() for path in (PROVISION / "debian.lock", PROVISION / "pylock.toml")}
    completed = inv("env.lock", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert completed.returncode == -signal.SIGKILL
    assert {path: path.read_bytes() for path in before} == before


def test_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ProvisionError, match="the disk is full"), temporary_root(tmp_path) as folder:
        (folder / "half").write_bytes(b"x")
        # The kernel's full device.
        with Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")
    assert files_in(tmp_path) == []


def test_other_errors_are_passed_on(tmp_path: Path) -> None:
    with pytest.raises(ProvisionError, match=os.strerror(errno.EACCES)), temporary_root(tmp_path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


_HALF = """
import sys, time
from pathlib import Path
from utvm.environment.locked import temporary_root
with temporary_root(Path(sys.argv[1])) as folder:
    (folder / "half").write_bytes(b"x")
    print("created", flush=True)
    time.sleep(1000)
"""


def test_next_build_removes_the_rest_of_a_killed_one(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _HALF, str(tmp_path)], stdout=subprocess.PIPE) as builder:
        try:
            assert builder.stdout is not None
            builder.stdout.readline()
            # The temporary folder of a running process is left alone.
            with temporary_root(tmp_path):
                assert len([name for name in files_in(tmp_path) if name.endswith("/half")]) == 1
        finally:
            builder.kill()
    with temporary_root(tmp_path) as folder:
        assert files_in(tmp_path) == [folder.name]
