# SPDX-License-Identifier: Apache-2.0
"""A tiny Linux guest in QEMU (x86, in software) with nothing but busybox, OpenOCD and drivers for USB.

Its kernel and its busybox are Debian's own packages, downloaded by the test through apt and unpacked, as a guest's
kernel has no business among the packages that the host boots from. OpenOCD is the host's, with its libraries.
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

from utvm.base.process.service import Subprocess
from utvm.errors import ProbeError

ROOT = Path(__file__).parents[3]
MODULES = ("usb-common", "usbcore", "xhci-hcd", "xhci-pci", "cdc-acm")  # in the order in which they need each other
_PATIENCE = 120.0  # seconds that anything in the guest may take

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
    """Return the kernel and a directory with its modules and a busybox, unpacked from Debian's packages."""
    kernel = _apt("apt-cache", "depends", "--important", "linux-image-amd64")
    found = re.search(r"Depends: (linux-image-\S+)", kernel)
    if not found:
        pytest.skip("apt knows no linux-image-amd64 for a guest: apt-get update, on an amd64 machine")
    packages = [found[1], "busybox-static"]
    versions = re.findall(r"Candidate: (\S+)", _apt("apt-cache", "policy", *packages))
    stamp = re.sub(r"[^\w.]", "_", "-".join([*packages, *versions]))
    kept = ROOT / "build" / "guest" / stamp
    if not kept.exists():
        directory.mkdir()
        _apt("apt-get", "download", *packages, cwd=directory)
        unpacked = directory / "unpacked"
        unpacked.mkdir()
        wanted = re.compile(rf"(bin/busybox|/vmlinuz-[^/]+|/({'|'.join(MODULES)})\.ko)$")
        for package in directory.glob("*.deb"):
            _unpack(package, wanted, unpacked)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(kept.with_suffix(".new"), ignore_errors=True)
        shutil.copytree(unpacked, kept.with_suffix(".new"))
        kept.with_suffix(".new").rename(kept)
    (kernel_file,) = kept.glob("vmlinuz-*")
    return kernel_file, kept


def _apt(*command: str, cwd: Path | None = None) -> str:
    plain = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, cwd=cwd, env=plain, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        pytest.skip(f"Debian's kernel and busybox for a guest cannot be had: {' '.join(command)}: {done.stderr[-300:]}")
    return done.stdout


def _unpack(package: Path, wanted: re.Pattern[str], to: Path) -> None:
    """Take a few files out of a package, by their names alone."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as dpkg:
        with tarfile.open(fileobj=dpkg.stdout, mode="r|") as archive:
            for member in archive:
                if member.isfile() and wanted.search(member.name):
                    content = archive.extractfile(member)
                    assert content
                    (to / Path(member.name).name).write_bytes(content.read())
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
        called = name.encode() + b"\0"
        fields = [next(self._numbers), mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(called), 0]
        self._bytes += b"070701" + "".join(f"{field:08x}" for field in fields).encode() + called
        self._bytes += bytes(-len(self._bytes) % 4) + content
        self._bytes += bytes(-len(self._bytes) % 4)


def initramfs(files: Path, extra: dict[str, bytes]) -> bytes:
    """Return a root file system: busybox, the modules, the host's OpenOCD and what a test puts in."""
    archive = _Cpio()
    archive.add("init", INIT.encode(), 0o755)
    archive.add("bin/busybox", (files / "busybox").read_bytes(), 0o755)
    for module in MODULES:
        archive.add(f"modules/{module}.ko", (files / f"{module}.ko").read_bytes(), 0o644)
    openocd = shutil.which("openocd")
    assert openocd, "openocd is not installed: see provision/debian.txt"
    archive.add("usr/bin/openocd", Path(openocd).read_bytes(), 0o755)
    said = subprocess.run(["ldd", openocd], capture_output=True, text=True, check=True, timeout=30).stdout
    for library in re.findall(r"/\S+", said):
        archive.add(library.lstrip("/"), Path(library).read_bytes(), 0o755)
    scripts = Path("/usr/share/openocd/scripts")
    for script in sorted(scripts.rglob("*")):
        if script.is_file():
            archive.add(str(script).lstrip("/"), script.read_bytes(), 0o644)
    for name, content in extra.items():
        archive.add(name, content, 0o755)
    return archive.finish()


class Guest:
    """A guest that is running; its shell is on its serial line.

    Args:
        usb: the sockets of what is plugged in. QEMU connects again a second after one was closed.
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
            self._hear(b".*ready\n")
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
        """Run a command in the guest's shell and return what it printed; the command must not fail, or must."""
        mark = f"mark-{next(self._marks)}-{os.getpid()}"
        self._serial.sendall(f"{command}; echo {mark} $?\n".encode())
        text, code = self._hear(rf"(.*){mark} (\d+)\n".encode()).groups()
        assert fails != (code == b"0"), f"{command}: exit code {code.decode()}:\n{text.decode(errors='replace')}"
        return text.decode(errors="replace")

    def start_answering(self, program: str) -> None:
        """Start what :meth:`ask` asks: it reads an order a line, and writes an answer a line."""
        self.run(f"mkfifo orders answers; ({program} < orders > answers 2> errors &); exec 3> orders 4< answers")

    def ask(self, order: str) -> Any:
        """Return what the program answers, which is JSON."""
        said = self.run(f"echo '{order}' >&3; read -r answer <&4; echo \"$answer\"")
        assert said.strip(), self.run("cat errors")
        return json.loads(said)

    def _hear(self, wanted: bytes) -> re.Match[bytes]:
        said = b""
        while not (found := re.match(wanted, said, re.DOTALL)):
            part = self._serial.recv(4096)
            assert part, f"the guest is gone; {said!r}; QEMU: {self._job.log_tail()}"
            said += part
        return found
