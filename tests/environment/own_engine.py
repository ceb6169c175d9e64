# SPDX-License-Identifier: Apache-2.0
"""A Docker engine for a test: its images, socket and processes are removed after the test."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from utvm.base.process import Service
from utvm.errors import ProvisionError


def missing() -> str:
    """Return the reason why no engine can be started here; an empty string if there is none."""
    if os.geteuid() != 0:
        return "root, to start a Docker engine"
    if shutil.which("dockerd") is None:
        return "dockerd: apt-get install docker.io"
    return ""


@contextlib.contextmanager
def own_engine() -> Iterator[str]:
    """Start an engine and yield its address in the form of ``DOCKER_HOST``."""
    # Not below pytest's folder: the path of a socket has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="utvm-engine-"))
    address = f"unix://{folder}/docker.sock"
    command: list[str | Path] = [
        # In its own namespaces, no mount or process outlives it.
        *("unshare", "--mount", "--pid", "--mount-proc", "--kill-child"),
        *("dockerd", f"--host={address}", f"--data-root={folder}/data", f"--exec-root={folder}/exec"),
        *(f"--pidfile={folder}/pid", "--bridge=none", "--iptables=false", "--ip6tables=false"),
        *("--storage-driver=overlay2", "--exec-opt=native.cgroupdriver=cgroupfs"),
    ]
    engine = Service(
        "dockerd", command, log=folder / "log", health="API listen on", error=ProvisionError, start_timeout=120
    )
    try:
        with engine:
            yield address
    finally:
        shutil.rmtree(folder)
