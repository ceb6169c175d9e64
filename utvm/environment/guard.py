# SPDX-License-Identifier: Apache-2.0
"""Removes a container when the process that started it ends, even by kill -9.

:func:`guard_container` starts this module as a process. It reads from a pipe, which the kernel closes when the
starter ends. If the guard is killed, too, :func:`remove_orphans` removes the container later.
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
    """The process that started a container; a label of the container.

    A process is identified by its number and start time, within one boot and one PID namespace.
    """

    host: str
    user: int
    boot: str
    namespace: str
    process: int
    started: str

    @classmethod
    def of(cls, label: str) -> "Owner | None":
        """Parse a label; None if it is not ours."""
        words = label.split()
        if len(words) != len(cls.__dataclass_fields__) or not (words[1] + words[4]).isdecimal():
            return None
        return cls(words[0], int(words[1]), words[2], words[3], int(words[4]), words[5])

    @property
    def label(self) -> str:
        words = (self.host, self.user, self.boot, self.namespace, self.process, self.started)
        return " ".join(map(str, words))

    def is_gone(self, running: bool) -> bool:
        """True if the process has certainly ended.

        Args:
            running: whether its container runs, which excludes a reboot.
        """
        us = current_owner()
        if (self.host, self.user) != (us.host, us.user):
            return False
        if self.boot != us.boot:
            return not running
        return self.namespace == us.namespace and self.started != _start_time(self.process)


def current_owner() -> Owner:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    namespace = str(Path("/proc/self/ns/pid").readlink())
    pid = os.getpid()
    return Owner(socket.gethostname(), os.getuid(), boot, namespace, pid, _start_time(pid))


def _start_time(pid: int) -> str:
    """Start time of a process in the kernel's ticks; empty if there is no such process."""
    try:
        # The second field, a name in parentheses, may contain spaces and parentheses (proc(5)).
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""


_NOT_RUNNING = ("created", "exited", "dead")
_CREATE_TIMEOUT = 10.0  # Seconds for the engine to create a container after its starter has ended.


@contextlib.contextmanager
def guard_container(name: str) -> Iterator[Callable[[], None]]:
    """Remove a container of that name when the ``with`` block, or this process, ends.

    Yields a function to call when the engine has replied: until then the container may still be created.
    """
    # In a session of its own, Ctrl-C does not reach it.
    watcher = subprocess.Popen(
        python_command("utvm.environment.guard", name),
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    assert watcher.stdin is not None
    pipe = watcher.stdin

    def mark_answered() -> None:
        with contextlib.suppress(BrokenPipeError):  # the guard was killed
            pipe.write(b"answered")
            pipe.flush()

    try:
        yield mark_answered
    finally:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
        if watcher.wait() < 0:
            _remove(name)


def remove_orphans(client: docker.DockerClient, label: str) -> None:
    """Remove containers whose owner has ended."""
    for container in client.containers.list(all=True, filters={"label": label}, ignore_removed=True):
        owner = Owner.of(container.labels[label])
        if owner is not None and owner.is_gone(running=container.status not in _NOT_RUNNING):
            engine.remove_container(client, container.name)


def _remove(name: str, patience: float = 0.0) -> None:
    """Remove a container; wait for one that does not exist yet."""
    deadline = time.monotonic() + patience
    with engine.connect() as client:
        while not engine.remove_container(client, name) and time.monotonic() < deadline:
            time.sleep(0.1)


if __name__ == "__main__":
    answered = sys.stdin.read()
    try:
        _remove(sys.argv[1], patience=0.0 if answered else _CREATE_TIMEOUT)
    except UtvmError as error:
        sys.exit(f"the container {sys.argv[1]} may still exist: {error}\n  docker rm --force {sys.argv[1]}")
