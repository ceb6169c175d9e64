# SPDX-License-Identifier: Apache-2.0
"""A Docker engine of a test's own: its images, its socket and everything it starts are gone when the test is."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from utvm.base.process.service import Service
from utvm.errors import ProvisionError


def missing() -> str:
    """Return why no engine can be started here; nothing when one can."""
    if os.geteuid() != 0:
        return "root, to start a Docker engine"
    if shutil.which("dockerd") is None:
        return "dockerd: apt-get install docker.io"
    return ""


@contextlib.contextmanager
def own_engine() -> Iterator[str]:
    """Start an engine and yield where it listens, as ``DOCKER_HOST`` says it."""
    # Not below pytest's folder: a socket's path has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="utvm-engine-"))
    place = f"unix://{folder}/docker.sock"
    command: list[str | Path] = [
        # Namespaces of its own: no mount and no process of it outlives it.
        *("unshare", "--mount", "--pid", "--mount-proc", "--kill-child"),
        *("dockerd", f"--host={place}", f"--data-root={folder}/data", f"--exec-root={folder}/exec"),
        *(f"--pidfile={folder}/pid", "--bridge=none", "--iptables=false", "--ip6tables=false"),
        *("--storage-driver=overlay2", "--exec-opt=native.cgroupdriver=cgroupfs"),
    ]
    engine = Service(
        "dockerd", command, log=folder / "log", health="API listen on", error=ProvisionError, start_timeout=120
    )
    try:
        with engine:
            yield place
    finally:
        shutil.rmtree(folder)
