# SPDX-License-Identifier: Apache-2.0
"""A Docker engine that is installed and does not run is started, shared, and ended with its last user."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment.own_engine import missing
from utvm.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

_CONNECT = """
import pathlib
from utvm.environment import engine
with engine.connect() as outer:
    with engine.connect() as inner:
        print("inner", inner.ping())
    print("outer", outer.ping())
engines = [file for file in pathlib.Path("/proc").glob("[0-9]*/comm") if file.read_text().strip() == "dockerd"]
print("left", len(engines))
"""
# Of its own: neither the computer's engine nor its images are touched.
_FOLDERS = "mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib && exec"


def _connect(prefix: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"} | variables
    isolated = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c")
    return subprocess.run(
        [*isolated, f'{prefix}{_FOLDERS} "$@"', "sh", sys.executable, "-c", _CONNECT],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_installed_engine_is_started_shared_and_ended() -> None:
    completed = _connect()
    assert completed.stdout == "inner True\nouter True\nleft 0\n", completed.stderr


def test_engine_that_cannot_be_started_gets_a_hint(tmp_path: Path) -> None:
    broken = tmp_path / "dockerd"
    broken.write_text("#!/bin/sh\necho no storage driver; exit 1\n")
    broken.chmod(0o755)
    completed = _connect(PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert "ProvisionError" in completed.stderr and "no storage driver" in completed.stderr
    completed = _connect("mount -t tmpfs tmpfs /usr/sbin && ", PATH="/usr/bin:/bin")
    assert "start it (as root: dockerd), or set DOCKER_HOST" in completed.stderr
