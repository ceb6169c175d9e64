# SPDX-License-Identifier: Apache-2.0
"""The machine's disk: a root file system as ext4, with a boot loader, in QEMU's format.

Built without mounts and loop devices, by the root file system's own locked programs. Fixed times and random
numbers make the disk reproducible.
"""

import os
import re
import shutil
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from utvm.base.process import clean_environment, run_tool
from utvm.errors import ProvisionError

_SECTOR = 512
_START = 2048  # Sectors before the only partition: the usual MiB, which holds the boot loader.
_BOOT_CODE = 440  # Boot code in the first sector, in bytes (UEFI specification 2.10, table 5.1).
_LINUX = 0x83
_PATIENCE = 1800.0  # Timeout of a program in seconds.
_BLOCK = 1 << 20
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib")
_LOADER_MODULES = ("biosdisk", "part_msdos", "ext2", "linux", "normal", "configfile", "boot", "test", "serial")

# Without mitigations: no foreign programs run in the machine.
_OPTIONS = "rootflags=noatime console=tty0 console=ttyS0 quiet net.ifnames=0 mitigations=off"
_MENU = Path(__file__).parent / "machine" / "grub.cfg"


def make_disk(
    layers: Sequence[Path], work: Path, output: Path, kernel: Path, *, name: str, epoch: int, gib: int
) -> None:
    """Write the disk as qcow2, and a copy of its kernel.

    Args:
        work: an empty folder with space for twice the layers.
        name: determines the file system's UUID.
        epoch: latest time of all files, in seconds since the epoch.
    """
    root = work / "root"
    root.mkdir()
    root.chmod(0o755)
    for layer in layers:
        # A folder's contents are spread over the tar, so its time is set last.
        options = ("--numeric-owner", "--preserve-permissions", "--delay-directory-restore")
        _as_root(["tar", "--extract", *options, f"--directory={root}", "--file", layer])
    programs = _Programs(root, epoch)
    identity = uuid.uuid5(uuid.NAMESPACE_OID, name)
    (version,) = (path.name.removeprefix("vmlinuz-") for path in (root / "boot").glob("vmlinuz-*"))
    shutil.copyfile(root / "boot" / f"vmlinuz-{version}", kernel)
    menu = root / "boot" / "grub" / "grub.cfg"
    # Permissions independent of the umask.
    _as_root(["install", "-d", "-m", "0755", menu.parent])
    text = _MENU.read_text("utf-8").format(version=version, uuid=identity, options=_OPTIONS)
    _as_root(["install", "-m", "0644", "/dev/stdin", menu], text)
    # Later layers have changed the times of folders.
    _as_root(["find", root, "-newermt", f"@{epoch}", "-exec", "touch", "-h", f"--date=@{epoch}", "{}", "+"])
    partition = work / "partition"
    _make_file_system(programs, root, partition, identity, gib * 1024 - 1)
    raw = work / "disk"
    with raw.open("wb") as disk:
        disk.truncate(gib << 30)
    _install_loader(programs, root, work, raw, identity)
    _copy_sparse(partition, raw, _START * _SECTOR)
    partition.unlink()
    programs.run("usr/bin/qemu-img", "convert", "-O", "qcow2", "-c", "-o", "compression_type=zstd", raw, output)
    raw.unlink()
    _as_root(["rm", "-rf", root])


class _Programs:
    """Programs of an unpacked root file system, run with its own libraries."""

    def __init__(self, root: Path, epoch: int) -> None:
        self._root = root
        self.epoch = epoch
        self._variables: Mapping[str, str] = {
            "E2FSPROGS_FAKE_TIME": str(epoch),
            "SOURCE_DATE_EPOCH": str(epoch),
            "MKE2FS_CONFIG": str(root / "etc/mke2fs.conf"),
            "LC_ALL": "C",
            "TZ": "UTC",
        }

    def run(self, program: str, *arguments: str | Path, stdin: str | None = None) -> str:
        libraries = ":".join(str(self._root / folder) for folder in _LIBRARIES)
        return _as_root(
            [
                *(self._root / "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "--library-path", libraries),
                *(self._root / program, *arguments),
            ],
            stdin,
            self._variables,
        )


def _as_root(
    command: Sequence[str | Path], stdin: str | None = None, variables: Mapping[str, str] | None = None
) -> str:
    """Run a command as root, or as root of a user namespace, where files keep their owners."""
    # Ends with this process, even after kill -9.
    ends_with_us = ("setpriv", "--pdeathsig", "KILL")
    user_namespace = () if os.geteuid() == 0 else ("unshare", "--map-root-user", "--map-auto")
    return run_tool(
        [*ends_with_us, *user_namespace, *clean_environment(variables or {}), *command],
        stdin=stdin,
        timeout=_PATIENCE,
        error=ProvisionError,
    )


def _make_file_system(programs: _Programs, root: Path, partition: Path, identity: uuid.UUID, mib: int) -> None:
    options = f"hash_seed={identity},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"
    programs.run(
        *("usr/sbin/mke2fs", "-q", "-t", "ext4", "-m", "0", "-U", str(identity), "-E", options),
        *("-d", root, partition, f"{mib}M"),
    )
    # mke2fs copies ctime and atime from the folder.
    commands = "".join(
        f"set_inode_field <{number}> {field} @{programs.epoch}\n"
        for number in used_inodes(programs.run("usr/sbin/dumpe2fs", partition))
        for field in ("ctime", "atime")
    )
    programs.run("usr/sbin/debugfs", "-w", "-f", "-", partition, stdin=commands)


def used_inodes(output: str) -> Iterator[int]:
    """Yield the numbers of used inodes, without reserved ones, from the output of dumpe2fs."""
    count = int(_match(output, r"^Inode count:\s+(\d+)$"))
    first = int(_match(output, r"^First inode:\s+(\d+)$"))
    free: set[int] = set()
    for ranges in re.findall(r"^  Free inodes: (.*)$", output, re.M):
        for part in filter(None, ranges.split(", ")):
            begin, _, end = part.partition("-")
            free.update(range(int(begin), int(end or begin) + 1))
    return (number for number in range(first, count + 1) if number not in free)


def _match(output: str, pattern: str) -> str:
    match = re.search(pattern, output, re.M)
    if not match:
        raise ProvisionError(f"the output of dumpe2fs lacks {pattern!r}", "check that its version is the lock's")
    return match[1]


def _install_loader(programs: _Programs, root: Path, work: Path, raw: Path, identity: uuid.UUID) -> None:
    """Write GRUB as grub-install does on a PC: boot.img in the first sector, then the core image."""
    modules = root / "usr/lib/grub/i386-pc"
    early, core = work / "early.cfg", work / "core.img"
    early.write_text("set root=(hd0,msdos1)\nconfigfile /boot/grub/grub.cfg\n", encoding="utf-8")
    programs.run(
        *("usr/bin/grub-mkimage", "--format=i386-pc", "--directory", modules, "--output", core),
        *("--prefix=(hd0,msdos1)/boot/grub", "--config", early, *_LOADER_MODULES),
    )
    code = core.read_bytes()
    if len(code) > (_START - 1) * _SECTOR:
        raise ProvisionError(f"GRUB takes {len(code)} bytes, which do not fit before the partition")
    sectors = raw.stat().st_size // _SECTOR - _START
    # An active partition, beyond the range of cylinder addresses.
    entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", _LINUX, b"\xfe\xff\xff", _START, sectors)
    first = (modules / "boot.img").read_bytes()[:_BOOT_CODE] + identity.bytes[:4] + bytes(2) + entry + bytes(48)
    with raw.open("r+b") as disk:
        disk.write(first + b"\x55\xaa" + code)


def _copy_sparse(source: Path, target: Path, offset: int) -> None:
    with source.open("rb") as read, target.open("r+b") as write:
        end = source.stat().st_size
        position = 0
        while position < end:
            try:
                begin = os.lseek(read.fileno(), position, os.SEEK_DATA)
            except OSError:
                return  # No data from here on.
            position = os.lseek(read.fileno(), begin, os.SEEK_HOLE)
            read.seek(begin)
            write.seek(offset + begin)
            while begin < position:
                block = read.read(min(_BLOCK, position - begin))
                write.write(block)
                begin += len(block)
