# SPDX-License-Identifier: Apache-2.0
"""Package files by the SHA-256 of their content: in the user's cache, or in an archive.

A file is hashed when it is added, and again when it is used, so an old archive is as good as the mirror.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from utvm.base.process.run import run_tool
from utvm.base.storage.cache import cache_root, file_digest, mark_used
from utvm.environment.debian import DebianPackage
from utvm.environment.python_lock import Wheel, pip
from utvm.environment.recipe import PythonPart
from utvm.environment.temporary_roots import disk_full, temporary_root
from utvm.errors import ProvisionError

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
        """Path of a package file, after checking its hash."""
        path = self.path(package.sha256)
        mark_used(path)
        try:
            digest = file_digest(path)
        except OSError as error:
            raise ProvisionError(
                f"{package.file} is not in {self.directory}: {error.strerror}",
                "without --mirror FOLDER, missing files are fetched",
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
        self, packages: Sequence[DebianPackage], bases: Mapping[str, str], progress: Progress | None = None
    ) -> None:
        """Fetch missing files with apt's own proxies, retries and certificates.

        Args:
            bases: URL of each archive.
        """
        for batch, done, missing in self._batches(packages):
            if progress:
                progress(f"Debian packages: {done} of {missing}")
            with temporary_root(self.directory) as folder:
                words: list[str | Path] = [_APT_HELPER, "-o", "APT::Sandbox::User=root", "download-file"]
                for package in batch:
                    url = bases[package.archive] + "/" + package.file
                    words += [url, folder / package.sha256, f"SHA256:{package.sha256}"]
                try:
                    run_tool(words, timeout=_FETCH_TIMEOUT, error=ProvisionError)
                except ProvisionError as error:
                    self._keep_complete(batch, folder)
                    raise _shorten_error(error, folder, "name another mirror with --mirror URL") from error
                for package in batch:
                    self.add(folder / package.sha256, package)

    def fetch_wheels(self, wheels: Sequence[Wheel], python: PythonPart, progress: Progress | None = None) -> None:
        """Fetch missing files with pip's own index, proxies and certificates."""
        for batch, done, missing in self._batches(wheels):
            if progress:
                progress(f"Python packages: {done} of {missing}")
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

    def _keep_complete(self, batch: Sequence[Locked], folder: Path) -> None:
        for package in batch:
            path = folder / package.sha256
            if path.is_file() and file_digest(path) == package.sha256:
                self.add(path, package)


def _shorten_error(error: ProvisionError, folder: Path, hint: str) -> ProvisionError:
    if "No space left on device" in error.message:
        return disk_full(folder.parent)
    lines = [line for line in error.message.splitlines() if line.lower().startswith(("e:", "error:"))]
    return ProvisionError("\n".join(["packages cannot be fetched:", *lines[:4]]), hint) if lines else error
