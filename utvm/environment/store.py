# SPDX-License-Identifier: Apache-2.0
"""Package files by the SHA-256 of their content: in the user's cache, or in an archive.

A file is hashed when it is added, and again when it is used, so an old archive is as good as the mirror.
"""

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from utvm.base.process.run import run_tool
from utvm.base.storage import temporary
from utvm.base.storage.cache import cache_root, file_digest, mark_used
from utvm.environment.debian import DebianPackage
from utvm.environment.python_lock import Wheel, pip
from utvm.environment.recipe import PythonPart
from utvm.errors import ProvisionError


@contextlib.contextmanager
def temporary_root(parent: Path) -> Iterator[Path]:
    """Empty temporary folder, see :func:`utvm.base.storage.temporary.temporary_folder`."""
    try:
        with temporary.temporary_folder(parent, _remove_root) as folder:
            try:
                yield folder
            except OSError as error:
                # Before the folder is removed: the message gives the free space.
                raise _disk_error(error, folder.parent) from error
    except OSError as error:
        raise _disk_error(error, parent.resolve()) from error


@contextlib.contextmanager
def replace_folder(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a new folder, which replaces the given one when the block ends, and a folder for working files."""
    with temporary_root(folder.parent) as work:
        new = work / "new"
        new.mkdir()
        yield new, work
        if folder.exists():
            folder.rename(work / "earlier")
        new.rename(folder)


def _remove_root(folder: Path) -> None:
    temporary.remove_tree(folder)
    if folder.exists() and shutil.which("mmdebstrap"):
        # Only a user namespace may remove files of the root file system's users.
        subprocess.run(["mmdebstrap", "--unshare-helper", "rm", "-rf", folder], capture_output=True, check=False)
    if folder.exists():
        raise ProvisionError(f"{folder}: cannot be removed", f"sudo rm -rf {folder}")


def disk_full(folder: Path) -> ProvisionError:
    free = shutil.disk_usage(folder).free // 1_000_000
    return ProvisionError(
        f"{folder}: the disk is full ({free} MB free)",
        "building an image takes about 5 GB: free some space, or set XDG_CACHE_HOME to another disk",
    )


def _disk_error(error: OSError, parent: Path) -> ProvisionError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(parent)
    return ProvisionError(f"{error.filename or parent}: {error.strerror or error}", "check its permissions")


_APT_HELPER = "/usr/lib/apt/apt-helper"
_BATCH = 40  # Files of one start of apt; a failed batch keeps its complete files.
_FETCH_TIMEOUT = 1800.0

Locked = DebianPackage | Wheel
_LockedT = TypeVar("_LockedT", DebianPackage, Wheel)
Progress = Callable[[str], None]


class Store:
    """Files named by their SHA-256, by default in the user's cache."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = (directory or cache_root() / "packages").resolve()

    def path(self, sha256: str) -> Path:
        return self.directory / "sha256" / sha256[:2] / sha256

    def has(self, package: Locked) -> bool:
        """True if the package file exists. Its hash is not checked."""
        return self.path(package.sha256).is_file()

    def verified(self, package: Locked) -> Path:
        path = self.path(package.sha256)
        mark_used(path)
        try:
            digest = file_digest(path)
        except OSError as error:
            raise ProvisionError(
                f"{package.file} is not in {self.directory}: {error.strerror}",
                "without --archive, missing files are fetched",
            ) from error
        if digest != package.sha256:
            path.unlink()
            raise ProvisionError(
                f"{path}: damaged: {package.file} should have the SHA-256 {package.sha256} and has {digest}",
                "it has been removed; start again to fetch it",
            )
        return path

    def add(self, file: Path, package: Locked) -> None:
        """Move a file into the store, after checking its hash."""
        digest = file_digest(file)
        if digest != package.sha256:
            raise ProvisionError(
                f"{package.file} has another SHA-256 than the lock says: {digest}, not {package.sha256}",
                "do not use this source; the file was not stored",
            )
        path = self.path(package.sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        file.chmod(0o644)
        file.replace(path)

    def fetch_debian(
        self, packages: Sequence[DebianPackage], bases: Mapping[str, str], say: Progress = lambda _: None
    ) -> None:
        """Fetch missing files with apt's own proxies, retries and certificates."""
        for batch, done, missing in self._batches(packages):
            say(f"Debian packages: {done} of {missing}")
            with temporary_root(self.directory) as folder:
                words: list[str | Path] = [_APT_HELPER, "-o", "APT::Sandbox::User=root", "download-file"]
                for package in batch:
                    url = bases[package.archive] + "/" + package.file
                    words += [url, folder / package.sha256, f"SHA256:{package.sha256}"]
                try:
                    run_tool(words, timeout=_FETCH_TIMEOUT, error=ProvisionError)
                except ProvisionError as error:
                    for package in batch:
                        path = folder / package.sha256
                        if path.is_file() and file_digest(path) == package.sha256:
                            self.add(path, package)
                    raise _shorten_error(error, folder, "name another mirror with --mirror URL") from error
                for package in batch:
                    self.add(folder / package.sha256, package)

    def fetch_wheels(self, wheels: Sequence[Wheel], python: PythonPart, say: Progress = lambda _: None) -> None:
        for batch, done, missing in self._batches(wheels):
            say(f"Python packages: {done} of {missing}")
            with temporary_root(self.directory) as folder:
                requirements = folder / "requirements.txt"
                requirements.write_text(
                    "".join(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in batch)
                )
                words = [*pip("download", python), "--require-hashes", f"--dest={folder}", "-r", str(requirements)]
                try:
                    run_tool(words, timeout=_FETCH_TIMEOUT, error=ProvisionError)
                except ProvisionError as error:
                    raise _shorten_error(error, folder, "is the package index reachable?") from error
                for wheel in batch:
                    self.add(folder / wheel.file, wheel)

    def copy(self, packages: Sequence[Locked], target: "Store") -> int:
        """Copy files into another store; return the number of new ones."""
        new = [package for package in packages if not target.has(package)]
        with temporary_root(target.directory) as folder:
            for package in new:
                shutil.copyfile(self.verified(package), folder / package.sha256)
                target.add(folder / package.sha256, package)
        return len(new)

    def name_wheels(self, wheels: Sequence[Wheel], folder: Path) -> None:
        """Link wheels under their names in a folder, for other installers."""
        folder.mkdir(exist_ok=True)
        for wheel in wheels:
            named = folder / wheel.file
            named.unlink(missing_ok=True)
            named.symlink_to(os.path.relpath(self.path(wheel.sha256), folder.resolve()))

    def _batches(self, packages: Sequence[_LockedT]) -> Iterator[tuple[list[_LockedT], int, int]]:
        missing = [package for package in packages if not self.has(package)]
        waiting, done = iter(missing), 0
        while batch := list(islice(waiting, _BATCH)):
            yield batch, done, len(missing)
            done += len(batch)


def _shorten_error(error: ProvisionError, folder: Path, hint: str) -> ProvisionError:
    if "No space left on device" in error.message:
        return disk_full(folder.parent)
    lines = [line for line in error.message.splitlines() if line.lower().startswith(("e:", "error:"))]
    return ProvisionError("\n".join(["packages cannot be fetched:", *lines[:4]]), hint) if lines else error
