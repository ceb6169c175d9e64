# SPDX-License-Identifier: Apache-2.0
"""Removes a container when the process that started it is gone, even by kill -9.

:func:`guard_container` starts this module as a process of its own. It reads from a pipe whose other end only the
starter has: the kernel closes that however the starter ends. What even it could not remove, because it was killed,
too, or because the machine went off, :func:`remove_orphans` removes the next time.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import docker

from utvm.base.process.interpreter import python_command
from utvm.environment import engine
from utvm.environment.owner import Owner
from utvm.errors import UtvmError

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
    with engine.connected() as client:
        while not engine.remove_container(client, name) and time.monotonic() < deadline:
            time.sleep(0.1)


if __name__ == "__main__":
    said = sys.stdin.read()
    try:
        _remove(sys.argv[1], patience=0.0 if said else _LATE)
    except UtvmError as error:
        sys.exit(f"the container {sys.argv[1]} may still be there: {error}\n  docker rm --force {sys.argv[1]}")
