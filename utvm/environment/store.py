# SPDX-License-Identifier: Apache-2.0
"""Package files by the SHA-256 of their content: under the user's cache, or an archive that one keeps for years.

A file is only ever in a store under the hash that it has: it is hashed on its way in, and again when it is used,
since disks rot. So an archive that was lying around for years is as good as the mirror.
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
_AT_ONCE = 40  # Files that one start of apt fetches: what came is kept when the next does not.
_PATIENCE = 1800.0  # Seconds for that many over a slow line.

Locked = DebianPackage | Wheel
_LockedT = TypeVar("_LockedT", DebianPackage, Wheel)
Progress = Callable[[str], None]


class Store:
    """Files named by their SHA-256.

    Args:
        directory: by default under the user's cache directory.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = (directory or cache_root() / "packages").resolve()

    def path(self, sha256: str) -> Path:
        """Return where the file of that hash is, if it is there."""
        return self.directory / "sha256" / sha256[:2] / sha256

    def has(self, package: Locked) -> bool:
        """Return whether a package's file is there; it is not looked at."""
        return self.path(package.sha256).is_file()

    def verified(self, package: Locked) -> Path:
        """Return a package's file after hashing it."""
        path = self.path(package.sha256)
        mark_used(path)
        try:
            found = file_digest(path)
        except OSError as error:
            raise ProvisionError(
                f"{package.file} is not in {self.directory}: {error.strerror}",
                "without --archive, what is missing is fetched",
            ) from error
        if found != package.sha256:
            path.unlink()
            raise ProvisionError(
                f"{path}: damaged: {package.file} should have the SHA-256 {package.sha256} and has {found}",
                "it has been removed; start again to have it fetched anew",
            )
        return path

    def add(self, file: Path, package: Locked) -> None:
        """Move a file in, whole or not at all."""
        found = file_digest(file)
        if found != package.sha256:
            raise ProvisionError(
                f"{package.file} has another SHA-256 than the lock says: {found}, not {package.sha256}",
                "do not use this source; nothing of the file has been kept",
            )
        path = self.path(package.sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        file.chmod(0o644)
        file.replace(path)

    def fetch_debian(
        self, packages: Sequence[DebianPackage], bases: Mapping[str, str], progress: Progress | None = None
    ) -> None:
        """Fetch what is not there yet, with apt's own means: its proxies, retries and certificates.

        Args:
            bases: where each archive is found.
            progress: told now and then how far it is.
        """
        for batch, done, missing in self._batches(packages):
            if progress:
                progress(f"Debian packages: {done} of {missing}")
            with temporary_root(self.directory) as folder:
                words: list[str | Path] = [_APT_HELPER, "-o", "APT::Sandbox::User=root", "download-file"]
                for package in batch:
                    place = bases[package.archive] + "/" + package.file
                    words += [place, folder / package.sha256, f"SHA256:{package.sha256}"]
                try:
                    run_tool(words, timeout=_PATIENCE, error=ProvisionError)
                except ProvisionError as error:
                    self._keep_whole(batch, folder)
                    raise _unfetched(error, folder, "name another mirror with --mirror URL") from error
                for package in batch:
                    self.add(folder / package.sha256, package)

    def fetch_wheels(self, wheels: Sequence[Wheel], python: PythonPart, progress: Progress | None = None) -> None:
        """Fetch what is not there yet, with pip: its index, proxies and certificates."""
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
                    run_tool(words, timeout=_PATIENCE, error=ProvisionError)
                except ProvisionError as error:
                    raise _unfetched(error, folder, "is the package index reachable?") from error
                for wheel in batch:
                    self.add(folder / wheel.file, wheel)

    def copy(self, packages: Sequence[Locked], target: "Store") -> int:
        """Copy files into another store, each hashed, and return how many were new there."""
        new = [package for package in packages if not target.has(package)]
        with temporary_root(target.directory) as folder:
            for package in new:
                shutil.copyfile(self.verified(package), folder / package.sha256)
                target.add(folder / package.sha256, package)
        return len(new)

    def name_wheels(self, wheels: Sequence[Wheel], folder: Path) -> None:
        """Have wheels under their names in a folder, as links: so a lock can be given to any installer."""
        folder.mkdir(exist_ok=True)
        for wheel in wheels:
            named = folder / wheel.file
            named.unlink(missing_ok=True)
            named.symlink_to(os.path.relpath(self.path(wheel.sha256), folder.resolve()))

    def _batches(self, packages: Sequence[_LockedT]) -> Iterator[tuple[list[_LockedT], int, int]]:
        missing = [package for package in packages if not self.has(package)]
        waiting, done = iter(missing), 0
        while batch := list(islice(waiting, _AT_ONCE)):
            yield batch, done, len(missing)
            done += len(batch)

    def _keep_whole(self, batch: Sequence[Locked], folder: Path) -> None:
        for package in batch:
            path = folder / package.sha256
            if path.is_file() and file_digest(path) == package.sha256:
                self.add(path, package)


def _unfetched(error: ProvisionError, folder: Path, hint: str) -> ProvisionError:
    """Say in a few lines what a tool said in many."""
    if "No space left on device" in error.message:
        return disk_full(folder.parent)
    words = [line for line in error.message.splitlines() if line.lower().startswith(("e:", "error:"))]
    if not words:
        return error
    return ProvisionError("\n".join(["packages cannot be fetched:", *words[:4]]), hint)
