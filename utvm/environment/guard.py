# SPDX-License-Identifier: Apache-2.0
"""Removes a container when the process that started it is gone, even by kill -9.

:func:`guard_container` starts this module as a process of its own. It reads from a pipe whose other end only the
starter has: the kernel closes that however the starter ends. What even it could not remove, because it was killed,
too, or because the machine went off, :func:`remove_orphans` removes the next time.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import docker

from utvm.base.process.interpreter import python_command
from utvm.environment import engine
from utvm.errors import UtvmError


@dataclass(frozen=True)
class Owner:
    """A process of some user, somewhere."""

    host: str
    user: int
    boot: str
    namespace: str
    process: int
    started: str

    @classmethod
    def of(cls, label: str) -> "Owner | None":
        """Read a label; None if it is none of ours."""
        words = label.split()
        if len(words) != len(cls.__dataclass_fields__) or not (words[1] + words[4]).isdecimal():
            return None
        return cls(words[0], int(words[1]), words[2], words[3], int(words[4]), words[5])

    @property
    def label(self) -> str:
        """It as a line of text."""
        words = (self.host, self.user, self.boot, self.namespace, self.process, self.started)
        return " ".join(map(str, words))

    def is_gone(self, running: bool) -> bool:
        """Return whether it has certainly ended without removing its container.

        Args:
            running: whether that container runs. After a restart of the machine it does not, and who started it
                cannot be there.
        """
        us = current_owner()
        if (self.host, self.user) != (us.host, us.user):
            return False
        if self.boot != us.boot:
            return not running
        return self.namespace == us.namespace and self.started != _started(self.process)


def current_owner() -> Owner:
    """Return this process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    namespace = str(Path("/proc/self/ns/pid").readlink())
    pid = os.getpid()
    return Owner(socket.gethostname(), os.getuid(), boot, namespace, pid, _started(pid))


def _started(pid: int) -> str:
    """Return when a process started, as the kernel counts; an empty string if there is none."""
    try:
        # The second field is a name in parentheses, which may have spaces and parentheses in it (proc(5)).
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""


_NOT_RUNNING = ("created", "exited", "dead")
# Seconds that the engine may take to make a container that nobody waits for any more.
_LATE = 10.0


@contextlib.contextmanager
def guard_container(name: str) -> Iterator[Callable[[], None]]:
    """Have no container of that name when the ``with`` block, or this process, has ended.

    Yields what is to be called when the engine has answered: until then one may still come to be.
    """
    # A session of its own: Ctrl-C in the terminal is for us, and we end it in order.
    watcher = subprocess.Popen(
        python_command("utvm.environment.guard", name),
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    assert watcher.stdin is not None
    pipe = watcher.stdin

    def answered() -> None:
        with contextlib.suppress(BrokenPipeError):  # Somebody has killed it.
            pipe.write(b"answered")
            pipe.flush()

    try:
        yield answered
    finally:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
        if watcher.wait() < 0:
            _remove(name)


def remove_orphans(client: docker.DockerClient, label: str) -> None:
    """Remove the containers with a label that says an owner who is gone."""
    for container in client.containers.list(all=True, filters={"label": label}, ignore_removed=True):
        owner = Owner.of(container.labels[label])
        if owner is not None and owner.is_gone(running=container.status not in _NOT_RUNNING):
            engine.remove_container(client, container.name)


def _remove(name: str, patience: float = 0.0) -> None:
    """Remove a container; one that is not there is waited for, for so many seconds."""
    deadline = time.monotonic() + patience
    with engine.connect() as client:
        while not engine.remove_container(client, name) and time.monotonic() < deadline:
            time.sleep(0.1)


if __name__ == "__main__":
    said = sys.stdin.read()
    try:
        _remove(sys.argv[1], patience=0.0 if said else _LATE)
    except UtvmError as error:
        sys.exit(f"the container {sys.argv[1]} may still be there: {error}\n  docker rm --force {sys.argv[1]}")
