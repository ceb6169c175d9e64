# SPDX-License-Identifier: Apache-2.0
"""A small Linux guest in QEMU (x86, emulated) with busybox, OpenOCD and USB drivers.

The test downloads Debian's packages of kernel and busybox through apt and unpacks them; they are not installed on the
host. OpenOCD and its libraries are the host's.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from utvm.base.process import Subprocess
from utvm.errors import ProbeError

ROOT = Path(__file__).parents[3]
MODULES = ("usb-common", "usbcore", "xhci-hcd", "xhci-pci", "cdc-acm")  # in the order of their dependencies
_PATIENCE = 120.0  # seconds; a limit for every action in the guest

INIT = f"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /root /sbin
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in {" ".join(MODULES)}; do insmod /modules/$module.ko || echo "insmod $module failed"; done
cd /root
exec < /dev/ttyS0 > /dev/ttyS0 2>&1
stty -echo -onlcr
echo ready
while read -r line; do eval "$line" < /dev/null; done
"""


def guest_files(directory: Path) -> tuple[Path, Path]:
    """The kernel, and a folder with its modules and busybox, unpacked from Debian's packages."""
    kernel = _apt("apt-cache", "depends", "--important", "linux-image-amd64")
    match = re.search(r"Depends: (linux-image-\S+)", kernel)
    if not match:
        pytest.skip("apt knows no linux-image-amd64 for a guest: apt-get update, on an amd64 machine")
    packages = [match[1], "busybox-static"]
    versions = re.findall(r"Candidate: (\S+)", _apt("apt-cache", "policy", *packages))
    stamp = re.sub(r"[^\w.]", "_", "-".join([*packages, *versions]))
    cached = ROOT / "build" / "guest" / stamp
    if not cached.exists():
        directory.mkdir()
        _apt("apt-get", "download", *packages, cwd=directory)
        unpacked = directory / "unpacked"
        unpacked.mkdir()
        pattern = re.compile(rf"(bin/busybox|/vmlinuz-[^/]+|/({'|'.join(MODULES)})\.ko)$")
        for package in directory.glob("*.deb"):
            _unpack(package, pattern, unpacked)
        cached.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(cached.with_suffix(".new"), ignore_errors=True)
        shutil.copytree(unpacked, cached.with_suffix(".new"))
        cached.with_suffix(".new").rename(cached)
    (kernel_file,) = cached.glob("vmlinuz-*")
    return kernel_file, cached


def _apt(*command: str, cwd: Path | None = None) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    completed = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    if completed.returncode:
        pytest.skip(
            f"Debian's kernel and busybox for a guest cannot be had: {' '.join(command)}: {completed.stderr[-300:]}"
        )
    return completed.stdout


def _unpack(package: Path, pattern: re.Pattern[str], folder: Path) -> None:
    """Extract files whose names match a pattern into one folder."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as dpkg:
        with tarfile.open(fileobj=dpkg.stdout, mode="r|") as archive:
            for member in archive:
                if member.isfile() and pattern.search(member.name):
                    content = archive.extractfile(member)
                    assert content
                    (folder / Path(member.name).name).write_bytes(content.read())
        assert dpkg.wait(timeout=60) == 0


class _Cpio:
    """Writes an archive in the kernel's format for an initramfs (newc)."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._numbers = itertools.count(1)
        self._directories: set[str] = set()

    def add(self, name: str, content: bytes, mode: int) -> None:
        for parent in reversed(Path(name).parents):
            if str(parent) not in {".", *self._directories}:
                self._directories.add(str(parent))
                self._entry(str(parent), b"", 0o040755)
        self._entry(name, content, 0o100000 | mode)

    def finish(self) -> bytes:
        self._entry("TRAILER!!!", b"", 0)
        return bytes(self._bytes)

    def _entry(self, name: str, content: bytes, mode: int) -> None:
        encoded_name = name.encode() + b"\0"
        fields = [next(self._numbers), mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded_name), 0]
        self._bytes += b"070701" + "".join(f"{field:08x}" for field in fields).encode() + encoded_name
        self._bytes += bytes(-len(self._bytes) % 4) + content
        self._bytes += bytes(-len(self._bytes) % 4)


def initramfs(files: Path, extra: dict[str, bytes]) -> bytes:
    """A root file system: busybox, the modules, the host's OpenOCD and a test's files."""
    archive = _Cpio()
    archive.add("init", INIT.encode(), 0o755)
    archive.add("bin/busybox", (files / "busybox").read_bytes(), 0o755)
    for module in MODULES:
        archive.add(f"modules/{module}.ko", (files / f"{module}.ko").read_bytes(), 0o644)
    openocd = shutil.which("openocd")
    assert openocd, "openocd is not installed: see provision/debian.txt"
    archive.add("usr/bin/openocd", Path(openocd).read_bytes(), 0o755)
    output = subprocess.run(["ldd", openocd], capture_output=True, text=True, check=True, timeout=30).stdout
    for library in re.findall(r"/\S+", output):
        archive.add(library.lstrip("/"), Path(library).read_bytes(), 0o755)
    scripts = Path("/usr/share/openocd/scripts")
    for script in sorted(scripts.rglob("*")):
        if script.is_file():
            archive.add(str(script).lstrip("/"), script.read_bytes(), 0o644)
    for name, content in extra.items():
        archive.add(name, content, 0o755)
    return archive.finish()


class Guest:
    """A running guest; its shell is on its serial line.

    Args:
        usb: sockets of the plugged devices. QEMU reconnects a second after a disconnection.
    """

    def __init__(self, directory: Path, kernel: Path, ramdisk: bytes, usb: Sequence[Path]) -> None:
        image = directory / "ramdisk"
        image.write_bytes(ramdisk)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / "serial"))
        self._listener.listen()
        self._listener.settimeout(_PATIENCE)
        command: list[str | Path] = ["qemu-system-x86_64", "-M", "pc", "-accel", "tcg"]
        command += ["-m", "256", "-nodefaults", "-display", "none", "-no-reboot", "-kernel", kernel, "-initrd", image]
        command += ["-append", "console=ttyS0 quiet panic=-1 no_timer_check", "-device", "qemu-xhci,p2=8"]
        command += ["-chardev", f"socket,id=serial,path={directory}/serial", "-serial", "chardev:serial"]
        for number, path in enumerate(usb):
            command += ["-chardev", f"socket,id=usb{number},path={path},reconnect=1"]
            command += ["-device", f"usb-redir,chardev=usb{number}"]
        self._job = Subprocess("guest", command, log=directory / "qemu.log", error=ProbeError)
        self._marks = itertools.count(1)

    def __enter__(self) -> "Guest":
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._listener)
            stack.enter_context(self._job)
            self._serial, _ = self._listener.accept()
            stack.enter_context(self._serial)
            self._serial.settimeout(_PATIENCE)
            self._read_until(b".*ready\n")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def wait_for(self, condition: str) -> None:
        """Wait until a command of the guest's shell succeeds."""
        self.run(f"for i in $(seq 600); do {condition} && break; sleep 0.1; done; {condition}")

    def run(self, command: str, *, fails: bool = False) -> str:
        """Run a command in the guest's shell and return its output; ``fails``: it must fail."""
        mark = f"mark-{next(self._marks)}-{os.getpid()}"
        self._serial.sendall(f"{command}; echo {mark} $?\n".encode())
        text, code = self._read_until(rf"(.*){mark} (\d+)\n".encode()).groups()
        assert fails != (code == b"0"), f"{command}: exit code {code.decode()}:\n{text.decode(errors='replace')}"
        return text.decode(errors="replace")

    def start_program(self, program: str) -> None:
        """Start the program for :meth:`ask`: it reads a command per line and writes a result per line."""
        self.run(f"mkfifo orders answers; ({program} < orders > answers 2> errors &); exec 3> orders 4< answers")

    def ask(self, command: str) -> Any:
        """Result of a command of the program, decoded from JSON."""
        output = self.run(f"echo '{command}' >&3; read -r answer <&4; echo \"$answer\"")
        assert output.strip(), self.run("cat errors")
        return json.loads(output)

    def _read_until(self, pattern: bytes) -> re.Match[bytes]:
        received = b""
        while not (match := re.match(pattern, received, re.DOTALL)):
            chunk = self._serial.recv(4096)
            assert chunk, f"the guest is gone; {received!r}; QEMU: {self._job.log_tail()}"
            received += chunk
        return match
