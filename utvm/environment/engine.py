# SPDX-License-Identifier: Apache-2.0
"""The Docker engine at ``DOCKER_HOST``: loads an image, and removes containers however their owner ends.

:func:`guard_container` starts this module as a process. It reads from a pipe that the kernel closes when the
starter ends. If the guard is killed too, :func:`remove_orphans` removes the container later.
"""

import contextlib
import fcntl
import http
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import docker
import docker.errors
import requests

from utvm.base.process import Service
from utvm.base.process.interpreter import python_command
from utvm.base.storage.files import create_own_folder, open_regular
from utvm.base.storage.lock import hold
from utvm.environment.image import Image, write_archive
from utvm.environment.machine.libvirt import FOLDER, SYSTEMD
from utvm.errors import ProvisionError, UtvmError

_REQUEST_TIMEOUT = 600  # Seconds; a busy machine loads an image slowly.
_START_SECONDS = 60.0
_SOCKET = "/var/run/docker.sock"


@contextlib.contextmanager
def connect() -> Iterator[docker.DockerClient]:
    """Connect to the engine; one that is installed is started, if needed, and ends with the last command."""
    address = os.environ.get("DOCKER_HOST", _SOCKET)
    try:
        with contextlib.ExitStack() as stack:
            if not (SYSTEMD.exists() or "DOCKER_HOST" in os.environ or os.geteuid()) and shutil.which("dockerd"):
                stack.enter_context(_started())
            client = stack.enter_context(contextlib.closing(docker.from_env(timeout=_REQUEST_TIMEOUT)))
            client.ping()
            yield client
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise _translate(error, address) from error


@contextlib.contextmanager
def _started() -> Iterator[None]:
    create_own_folder(FOLDER)
    log, health = FOLDER / "dockerd.log", "API listen on"
    with open(FOLDER / "engine", "w", opener=open_regular) as users, contextlib.ExitStack() as stack:
        with hold("dockerd", patience=_START_SECONDS), socket.socket(socket.AF_UNIX) as connection:
            fcntl.flock(users, fcntl.LOCK_SH)
            if connection.connect_ex(_SOCKET):
                engine = Service("dockerd", ["dockerd"], log=log, health=health, error=ProvisionError, stop_timeout=30)
                stack.enter_context(engine)
                # Wait for other commands that use it.
                stack.callback(fcntl.flock, users, fcntl.LOCK_EX)
        yield


def has_image(client: docker.DockerClient, image: Image) -> bool:
    # In containerd's store an image's id is its manifest's digest, elsewhere its configuration's.
    name = image.tags[0]
    return has_tag(client, name) and client.images.get(name).id in (image.digest, image.config)


def has_tag(client: docker.DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        return False
    return True


def load_image(client: docker.DockerClient, image: Image) -> None:
    read, write = os.pipe()

    def send() -> None:
        # If the engine refuses the image, it closes the pipe; its error is raised below.
        with contextlib.suppress(BrokenPipeError), os.fdopen(write, "wb") as output:
            write_archive(image.layout, output)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with os.fdopen(read, "rb") as archive:
            client.images.load(archive)
    finally:
        sender.join()
    if not has_image(client, image):
        raise ProvisionError(f"the engine loaded something other than {image.tags[0]} ({image.config})")


def remove_container(client: docker.DockerClient, name: str) -> bool:
    """Remove a container, running or not; False if it does not exist."""
    try:
        client.containers.get(name).remove(force=True)
    except docker.errors.NotFound:
        return False
    except docker.errors.APIError as error:
        # CONFLICT: another process is removing it.
        if error.status_code != http.HTTPStatus.CONFLICT:
            raise
    return True


def _translate(error: Exception, address: str) -> ProvisionError:
    text = str(error)
    if "Permission denied" in text or "PermissionError" in text:
        return ProvisionError(
            f"the Docker engine at {address} denies you access",
            "join its group (sudo usermod -aG docker $USER, then log in again), or use a rootless engine",
        )
    if any(word in text for word in ("Connection refused", "ConnectionRefused", "No such file", "FileNotFound")):
        start = "sudo systemctl start docker" if SYSTEMD.exists() else "as root: dockerd"
        return ProvisionError(f"no Docker engine answers at {address}", f"start it ({start}), or set DOCKER_HOST")
    if "no space left on device" in text:
        return ProvisionError("the Docker engine's disk is full", "free space: docker system prune")
    return ProvisionError(f"the Docker engine at {address}: {text.splitlines()[0] if text else type(error).__name__}")


@dataclass(frozen=True)
class Owner:
    """The process that started a container, as a label of the container.

    A process is identified by its number and start time within one boot and PID namespace.
    """

    host: str
    user: int
    boot: str
    namespace: str
    process: int
    started: str

    @classmethod
    def of(cls, label: str) -> "Owner | None":
        words = label.split()
        if len(words) != len(cls.__dataclass_fields__) or not (words[1] + words[4]).isdecimal():
            return None
        return cls(words[0], int(words[1]), words[2], words[3], int(words[4]), words[5])

    @property
    def label(self) -> str:
        return " ".join(map(str, astuple(self)))

    def is_gone(self, running: bool) -> bool:
        """True if the process has certainly ended.

        Args:
            running: whether its container runs, which excludes a reboot.
        """
        current = current_owner()
        if (self.host, self.user) != (current.host, current.user):
            return False
        if self.boot != current.boot:
            return not running
        return self.namespace == current.namespace and self.started != _start_time(self.process)


def current_owner() -> Owner:
    boot = namespace = "-"
    with contextlib.suppress(OSError):  # not Linux
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    pid = os.getpid()
    return Owner(socket.gethostname(), os.getuid(), boot, namespace, pid, _start_time(pid))


def _start_time(pid: int) -> str:
    """Start time of a process in kernel ticks; ``-`` if it does not exist, or this is not Linux."""
    try:
        # The second field, a name in parentheses, may contain spaces and parentheses (proc(5)).
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return "-"


_NOT_RUNNING = ("created", "exited", "dead")
_CREATE_TIMEOUT = 10.0  # Seconds for the engine to create a container after its starter has ended.


@contextlib.contextmanager
def guard_container(name: str) -> Iterator[Callable[[], None]]:
    """Remove a container of that name when the ``with`` block, or this process, ends.

    Yields a function to call when the engine has replied; until then the container may still be created.
    """
    # Its own session shields it from Ctrl-C.
    watcher = subprocess.Popen(
        python_command("utvm.environment.engine", name), stdin=subprocess.PIPE, start_new_session=True
    )
    assert watcher.stdin is not None
    pipe = watcher.stdin

    def confirm_answer() -> None:
        with contextlib.suppress(BrokenPipeError):  # the guard was killed
            pipe.write(b"answered")
            pipe.flush()

    try:
        yield confirm_answer
    finally:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
        if watcher.wait() < 0:
            _remove(name)


def remove_orphans(client: docker.DockerClient, label: str) -> None:
    for container in client.containers.list(all=True, filters={"label": label}, ignore_removed=True):
        owner = Owner.of(container.labels[label])
        if owner is not None and owner.is_gone(running=container.status not in _NOT_RUNNING):
            remove_container(client, container.name)


def _remove(name: str, patience: float = 0.0) -> None:
    """Remove a container; wait for one that does not exist yet."""
    deadline = time.monotonic() + patience
    with connect() as client:
        while not remove_container(client, name) and time.monotonic() < deadline:
            time.sleep(0.1)


if __name__ == "__main__":
    answered = sys.stdin.read()
    try:
        _remove(sys.argv[1], patience=0.0 if answered else _CREATE_TIMEOUT)
    except UtvmError as error:
        sys.exit(f"the container {sys.argv[1]} may still exist: {error}\n  docker rm --force {sys.argv[1]}")
