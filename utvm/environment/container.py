# SPDX-License-Identifier: Apache-2.0
"""A container of the environment with the checkout in it, for one command or a shell, as the calling user.

It has only the loopback network, no capabilities, and is never privileged. It is removed when its command or this
process ends, even if killed.
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
from utvm.environment import builds, engine, locked, remote
from utvm.environment.image import CHECKOUT
from utvm.errors import VERDICTS, ConfigError, ProvisionError
from utvm.paths import DATA, INSTALLED, PACKAGE, ROOT
from utvm.probe.usb import Probe, serial_ports
from utvm.probe.usb.sysfs import NODES
from utvm.provenance.location import location_variables

LABEL = "utvm.container"
"""Label of all our containers: their :class:`utvm.environment.engine.Owner`."""
_BLOCK = 1 << 16
_GRACE = 30.0  # Seconds for an interrupted command to end: a run releases its board, and reports.


@dataclass(frozen=True)
class ContainerAccess:
    """Additional folders and devices of a container.

    Attributes:
        folders: path on the host -> path in the container.
        device_rules: devices that may be opened, as rules of the kernel's device control group.
    """

    folders: Mapping[str, str] = field(default_factory=dict)
    device_rules: Sequence[str] = ()
    devices: Sequence[str] = ()
    groups: Sequence[int] = ()


def run(client: docker.DockerClient, image: str, command: Sequence[str], extra: ContainerAccess | None = None) -> int:
    """Run a command in the checkout, pass its output on, and return its exit code.

    An interrupt stops the command and waits for it, until interrupted again; if it still reaches a verdict, its
    exit code is returned.
    """
    # Reading ends with the container, which the inner block removes.
    with (
        ThreadPoolExecutor(1) as other_thread,
        _create(client, image, command, extra or ContainerAccess(), tty=False) as container,
    ):
        output = container.attach(stdout=True, stderr=True, stream=True, logs=True, demux=True)
        try:
            container.start()
            # A connection cannot be used again after an interrupted read.
            other_thread.submit(_print, output).result()
        except KeyboardInterrupt:
            verdict = _stop_and_get_verdict(container)
            if verdict is None:
                raise
            return verdict
        return int(container.wait()["StatusCode"])


def _stop_and_get_verdict(container: Container) -> int | None:
    with contextlib.suppress(docker.errors.APIError):  # it has just ended, or has not begun
        container.kill(signal="SIGTERM")
    container.reload()
    if container.status == "created":
        return None
    try:
        code = int(container.wait(timeout=_GRACE)["StatusCode"])
    except requests.exceptions.RequestException:  # not in time
        return None
    return code if code in VERDICTS else None


def shell(client: docker.DockerClient, image: str, extra: ContainerAccess | None = None) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ProvisionError("a shell needs a terminal", "docker.run runs a command without one")
    with _create(client, image, ["bash"], extra or ContainerAccess(), tty=True) as container:
        stream = container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        # The SDK's file object cannot write; the socket that it wraps can.
        connection = getattr(stream, "_sock", stream)
        container.start()
        with _raw_terminal(container):
            _pump(connection)
        return int(container.wait()["StatusCode"])


def _print(output: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    for chunks in output:
        for text, stream in zip(chunks, (sys.stdout, sys.stderr), strict=True):
            if text:
                stream.buffer.write(text)
                stream.flush()


@contextlib.contextmanager
def _create(
    client: docker.DockerClient, image: str, command: Sequence[str], extra: ContainerAccess, tty: bool
) -> Iterator[Container]:
    name = f"utvm-{os.getpid()}-{secrets.token_hex(4)}"
    # Of an installed utvm, only its own folders.
    own = {str(path): f"{CHECKOUT}/{path.name}" for path in (PACKAGE, DATA)} if INSTALLED else {str(ROOT): CHECKOUT}
    folders = {**own, **extra.folders}
    options: dict[str, Any] = {
        "name": name,
        "labels": {LABEL: engine.current_owner().label},
        "user": f"{os.getuid()}:{os.getgid()}",
        "working_dir": CHECKOUT,
        "volumes": {host: {"bind": inside, "mode": "rw"} for host, inside in folders.items()},
        # The calling user has no home folder in the container.
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
        # Its init process forwards signals and reaps orphans.
        "init": True,
        "tty": tty,
        "stdin_open": tty,
    }
    engine.remove_orphans(client, LABEL)
    with engine.guard_container(name) as confirm_answer:
        try:
            # Even if interrupted, wait for it: a container that does not exist yet cannot be removed.
            with ThreadPoolExecutor(1) as other_thread:
                container = other_thread.submit(client.containers.create, image, list(command), **options).result()
        except docker.errors.APIError as error:
            confirm_answer()
            if not isinstance(error, docker.errors.ImageNotFound):
                raise
            raise ProvisionError(f"the engine has no image {image}", "build it: ./inv docker.build") from error
        confirm_answer()
        yield container


@contextlib.contextmanager
def _raw_terminal(container: Container) -> Iterator[None]:
    """Pass every key to the container, also Ctrl-C, and the terminal's size."""

    def resize(*_: object) -> None:
        rows, columns = struct.unpack("HHHH", fcntl.ioctl(sys.stdout, termios.TIOCGWINSZ, b"\0" * 8))[:2]
        with contextlib.suppress(docker.errors.APIError):
            container.resize(rows, columns)

    settings, handler = termios.tcgetattr(sys.stdin), signal.signal(signal.SIGWINCH, resize)
    try:
        tty.setraw(sys.stdin)
        resize()
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)
        signal.signal(signal.SIGWINCH, handler)


def _pump(connection: socket.socket) -> None:
    """Copy bytes between the terminal and the container until the container closes its end."""
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
    """Return access to probes on this computer's USB.

    The whole bus is mounted as a folder, so that a probe can be replugged; the nodes' permissions decide, as on
    the host. A serial port keeps its current name.
    """
    ports = tuple(
        port
        for probe in probes
        for port in serial_ports(probe.serial_number, usb_path=probe.usb_path if probe.by_path else "")
    )
    owners = set()
    for node in [*ports, *(str(NODES / f"{probe.bus:03}" / f"{probe.address:03}") for probe in probes)]:
        with contextlib.suppress(OSError):  # just unplugged
            owners.add(Path(node).stat().st_gid)
    folders = {str(NODES): "/dev/bus/usb"}
    if locks := shared_directory():
        # Probe locks are shared between host and containers.
        folders[str(locks)] = str(locks)
    return ContainerAccess(
        folders=folders,
        device_rules=(f"c {_USB_MAJOR}:* rw",),
        devices=ports,
        # No more rights than the calling user has.
        groups=tuple(sorted(owners & set(os.getgroups()))),
    )


_OTHERS = PurePosixPath("/mnt")


class InContainer:
    """A container of the image for the checkout's locks, as a :class:`utvm.environment.remote.RemoteLocation`."""

    has_usb = False
    chooses_board = False

    def __init__(self, say: locked.Progress) -> None:
        self._say = say

    def run(self, command: remote.RemoteCommand) -> int:
        # The engine would create missing folders as root.
        for folder in command.output_folders:
            with ConfigError.on_os_error(f"{folder}: cannot be created", "choose another folder"):
                folder.mkdir(parents=True, exist_ok=True)
        paths = _container_paths(command.paths)
        mounts = {str(path): name for path, name in paths.items() if ROOT not in path.parents}
        devices = usb_access([command.probe]) if command.probe else ContainerAccess()
        extra = dataclasses.replace(devices, folders={**devices.folders, **mounts})
        with engine.connect() as client:
            image = builds.ensure_image(client, self._say)
            self._say("")
            return run(client, image, command.argv(paths, CHECKOUT), extra)


def _container_paths(folders: Sequence[Path]) -> dict[Path, str]:
    """Map folders to paths in a container; siblings stay siblings, under their own names."""
    parents = list(dict.fromkeys(path.parent for path in folders))
    return {
        path: str(
            PurePosixPath(CHECKOUT) / path.relative_to(ROOT)
            if ROOT in path.parents
            else _OTHERS / str(parents.index(path.parent)) / path.name
        )
        for path in folders
    }
