# SPDX-License-Identifier: Apache-2.0
"""A container of the environment, with the checkout in it: one command, or a shell, as the calling user.

It has no network beyond its own loopback, no capabilities, and is never privileged. It is gone when its command
has ended, and when we have, in whatever way.
"""

import contextlib
import dataclasses
import fcntl
import os
import secrets
import select
import signal
import socket
import struct
import sys
import termios
import tty
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import docker
import docker.errors
import requests
from docker.models.containers import Container

from utvm.base.storage.lock import shared_directory
from utvm.environment import engine
from utvm.environment.guard import current_owner, guard_container, remove_orphans
from utvm.environment.layers import CHECKOUT
from utvm.environment.location import location_variables
from utvm.environment.making import ensure_image
from utvm.environment.remote import RemoteCommand
from utvm.environment.store import Progress
from utvm.errors import VERDICTS, ConfigError, ProvisionError
from utvm.paths import ROOT
from utvm.probe.sources.sysfs import NODES
from utvm.probe.usb import Probe, serial_ports

LABEL = "utvm.container"
"""All containers of ours have it: their :class:`utvm.environment.guard.Owner`."""
_BLOCK = 1 << 16
_PATIENCE = 30.0  # Seconds that an interrupted command may take to end: a run lets go of its board, and reports.


@dataclass(frozen=True)
class ContainerAccess:
    """What a container has beyond the usual.

    Attributes:
        folders: of the host, each with its place in the container.
        device_rules: which kinds of device may be opened, in the words of the kernel's control groups.
        devices: device nodes of the host, under their own names.
        groups: numbers of groups that its user is in.
    """

    folders: Mapping[str, str] = field(default_factory=dict)
    device_rules: Sequence[str] = ()
    devices: Sequence[str] = ()
    groups: Sequence[int] = ()


def run(
    client: docker.DockerClient, image: str, command: Sequence[str], extra: ContainerAccess | None = None
) -> int:
    """Run a command in the checkout, pass on what it prints, and return its exit code.

    Interrupted, it tells the command to end and waits until it has; interrupted again, no longer. One that came to
    a verdict all the same has said so, and that is its exit code.
    """
    # The other thread ends with its container: when its block does, that is gone.
    with (
        ThreadPoolExecutor(1) as other_thread,
        _created(client, image, command, extra or ContainerAccess(), tty=False) as container,
    ):
        output = container.attach(stdout=True, stderr=True, stream=True, logs=True, demux=True)
        try:
            container.start()
            # Interrupted while it reads, a connection would be of no use any more.
            other_thread.submit(_print, output).result()
        except KeyboardInterrupt:
            verdict = _verdict_when_told_to_end(container)
            if verdict is None:
                raise
            return verdict
        return int(container.wait()["StatusCode"])


def _verdict_when_told_to_end(container: Container) -> int | None:
    """Tell a container's command to end, and return its exit code, if it began and came to a verdict in time."""
    with contextlib.suppress(docker.errors.APIError):  # it has just ended, or did not begin
        container.kill(signal="SIGTERM")
    container.reload()
    if container.status == "created":
        return None
    try:
        code = int(container.wait(timeout=_PATIENCE)["StatusCode"])
    except requests.exceptions.RequestException:  # not in time
        return None
    return code if code in VERDICTS else None


def shell(client: docker.DockerClient, image: str, extra: ContainerAccess | None = None) -> int:
    """Hand the terminal to a shell in the checkout until it ends, and return its exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ProvisionError("a shell needs a terminal", "docker.run runs a command without one")
    with _created(client, image, ["bash"], extra or ContainerAccess(), tty=True) as container:
        stream = container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        # The SDK wraps the socket in a file object that cannot write; over TLS the wrapped one is the connection.
        connection = getattr(stream, "_sock", stream)
        container.start()
        with _raw_terminal(), _following_size(container):
            _pump(connection)
        return int(container.wait()["StatusCode"])


def _print(output: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    for printed, complained in output:
        for text, stream in ((printed, sys.stdout), (complained, sys.stderr)):
            if text:
                stream.buffer.write(text)
                stream.flush()


@contextlib.contextmanager
def _created(
    client: docker.DockerClient, image: str, command: Sequence[str], extra: ContainerAccess, tty: bool
) -> Iterator[Container]:
    """Make a container that does not run yet, and remove it in the end."""
    name = f"utvm-{os.getpid()}-{secrets.token_hex(4)}"
    folders = {str(ROOT): CHECKOUT, **extra.folders}
    options: dict[str, Any] = {
        "name": name,
        "labels": {LABEL: current_owner().label},
        "user": f"{os.getuid()}:{os.getgid()}",
        "working_dir": CHECKOUT,
        "volumes": {host: {"bind": inside, "mode": "rw"} for host, inside in folders.items()},
        # The calling user has no home in it; caches and such go with the container.
        "environment": {
            "HOME": "/tmp",
            "TERM": os.environ.get("TERM", "dumb"),
            **location_variables("docker", folders),
        },
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "device_cgroup_rules": list(extra.device_rules),
        "devices": [f"{node}:{node}:rw" for node in extra.devices],
        "group_add": [str(group) for group in extra.groups],
        # A first process that passes signals on and collects orphans.
        "init": True,
        "tty": tty,
        "stdin_open": tty,
    }
    remove_orphans(client, LABEL)
    with guard_container(name) as answered:
        try:
            # Interrupted, it is waited for all the same: one that is not there yet could not be removed.
            with ThreadPoolExecutor(1) as other_thread:
                made = other_thread.submit(client.containers.create, image, list(command), **options).result()
        except docker.errors.APIError as error:
            answered()
            if not isinstance(error, docker.errors.ImageNotFound):
                raise
            raise ProvisionError(f"the engine has no image {image}", "./inv docker.build makes it") from error
        answered()
        yield made


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Hand every key to the container, also Ctrl-C."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _following_size(container: Container) -> Iterator[None]:
    def resize(*_: object) -> None:
        rows, columns = struct.unpack("HHHH", fcntl.ioctl(sys.stdout, termios.TIOCGWINSZ, b"\0" * 8))[:2]
        with contextlib.suppress(docker.errors.APIError):
            container.resize(rows, columns)

    before = signal.signal(signal.SIGWINCH, resize)
    try:
        resize()
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _pump(connection: socket.socket) -> None:
    """Pass bytes between the terminal and the container, until the container closes its end."""
    sources = [connection.fileno(), sys.stdin.fileno()]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if connection.fileno() in ready:
            data = connection.recv(_BLOCK)
            if not data:
                return
            os.write(sys.stdout.fileno(), data)
        if sys.stdin.fileno() in ready:
            typed = os.read(sys.stdin.fileno(), _BLOCK)
            if typed:
                connection.sendall(typed)
            else:
                sources.remove(sys.stdin.fileno())
                connection.shutdown(socket.SHUT_WR)


_USB_MAJOR = 189  # Linux, Documentation/admin-guide/devices.txt


def usb_access(probes: Sequence[Probe]) -> ContainerAccess:
    """Return what a container gets to drive probes of this computer's.

    The whole bus is in it, as a folder, so that a probe that is unplugged and plugged in again is there again; who
    may open which device on it is decided as outside, by the node's user, group and mode. A serial port is in it
    under the name that it has now.
    """
    ports = tuple(port for each in probes for port in serial_ports(each.serial))
    nodes = [*ports, *(str(NODES / f"{each.bus:03}" / f"{each.address:03}") for each in probes)]
    folders = {str(NODES): "/dev/bus/usb"}
    if locks := shared_directory():
        # Whoever drives a probe, in a container or not, keeps the others away.
        folders[str(locks)] = str(locks)
    return ContainerAccess(
        folders=folders,
        device_rules=(f"c {_USB_MAJOR}:* rw",),
        devices=ports,
        groups=_own_groups(nodes),
    )


def _own_groups(nodes: Sequence[str]) -> tuple[int, ...]:
    """Return the groups of nodes that the calling user is in: a container gives nobody more than he has."""
    owners = set()
    for node in nodes:
        # Unless it was unplugged just now.
        with contextlib.suppress(OSError):
            owners.add(Path(node).stat().st_gid)
    return tuple(sorted(owners & set(os.getgroups())))


_OTHERS = PurePosixPath("/mnt")


class InContainer:
    """A container of the image for the checkout's locks, as a :class:`Place`.

    Args:
        say: is told what is being done, and nothing when that is done and the command begins.
    """

    has_usb = False
    chooses_board = False

    def __init__(self, say: Progress) -> None:
        self._say = say

    def run(self, command: RemoteCommand) -> int:
        """Run a command in it."""
        # The engine would make them as root.
        for folder in command.output_folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"{folder}: cannot be made: {error.strerror}", "choose another folder"
                ) from error
        places = _called(command.paths)
        more = {str(path): name for path, name in places.items() if ROOT not in path.parents}
        # Whoever drives the probe in there locks it for all of this computer.
        devices = usb_access([command.request.probe]) if command.request.probe else ContainerAccess()
        extra = dataclasses.replace(devices, folders={**devices.folders, **more})
        with engine.connect() as client:
            image = ensure_image(client, self._say)
            self._say("")
            return run(client, image, command.argv(places, CHECKOUT), extra)


def _called(folders: Sequence[Path]) -> dict[Path, str]:
    """Return what a container calls some folders: what lies side by side does so there, under its own name."""
    parents = list(dict.fromkeys(path.parent for path in folders))
    return {
        path: str(
            PurePosixPath(CHECKOUT) / path.relative_to(ROOT)
            if ROOT in path.parents
            else _OTHERS / str(parents.index(path.parent)) / path.name
        )
        for path in folders
    }
