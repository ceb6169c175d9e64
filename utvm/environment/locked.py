# SPDX-License-Identifier: Apache-2.0
"""The locked environment: the recipe and its locks with one digest, its package files, and lock differences.

Package files are named by their SHA-256, in the user's cache or in an archive, and hashed when added and when
used, so an old archive is as trustworthy as the mirror.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import utvm
from utvm.base.process import run_tool
from utvm.base.storage import files
from utvm.base.storage.cache import cache_root, file_digest, mark_used
from utvm.environment import debian, python_lock
from utvm.environment.debian import DebianLock, DebianPackage, load_lock
from utvm.environment.python_lock import Wheel, load_wheels, pip
from utvm.environment.recipe import PythonPart, Recipe, load_recipe
from utvm.errors import ConfigError, ProvisionError
from utvm.paths import PROVISION, ROOT
from utvm.provenance.location import files_digest, read_lock_files


@contextlib.contextmanager
def temporary_root(parent: Path) -> Iterator[Path]:
    """Empty temporary folder, see :func:`utvm.base.storage.files.temporary_folder`."""
    try:
        with files.temporary_folder(parent, _remove_root) as folder:
            try:
                yield folder
            except OSError as error:
                # Before the folder is removed: the message gives the free space.
                raise _disk_error(error, folder.parent) from error
    except OSError as error:
        raise _disk_error(error, parent.resolve()) from error


@contextlib.contextmanager
def replace_folder(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a new folder that replaces the given one when the block ends, and a work folder."""
    with temporary_root(folder.parent) as work:
        new = work / "new"
        new.mkdir()
        yield new, work
        if folder.exists():
            folder.rename(work / "earlier")
        new.rename(folder)


def _remove_root(folder: Path) -> None:
    files.remove_tree(folder)
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
_BATCH = 10  # Files per start of apt; a failed batch keeps its complete files.
_BATCH_BYTES = 32_000_000  # So that the count of files moves on a slow network, too.
_FETCH_TIMEOUT = 1800.0

LockedPackage = DebianPackage | Wheel
_PackageT = TypeVar("_PackageT", DebianPackage, Wheel)
Progress = Callable[[str], None]


class Store:
    def __init__(self, directory: Path | None = None) -> None:
        self.directory = (directory or cache_root() / "packages").resolve()

    def path(self, sha256: str) -> Path:
        return self.directory / "sha256" / sha256[:2] / sha256

    def has(self, package: LockedPackage) -> bool:
        """True if the package file exists. Its hash is not checked."""
        return self.path(package.sha256).is_file()

    def verify(self, package: LockedPackage) -> Path:
        path = self.path(package.sha256)
        mark_used(path)
        with ProvisionError.on_os_error(
            f"{package.file} is not in {self.directory}", "without --mirror FOLDER, missing files are fetched"
        ):
            digest = file_digest(path)
        if digest != package.sha256:
            path.unlink()
            raise ProvisionError(
                f"{path}: damaged: {package.file} should have the SHA-256 {package.sha256} and has {digest}",
                "it has been removed; start again to fetch it",
            )
        return path

    def add(self, file: Path, package: LockedPackage) -> None:
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
        for batch, count, missing in self._batches(packages):
            say(f"Debian packages: {count} of {missing}")
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
        for batch, count, missing in self._batches(wheels):
            say(f"Python packages: {count} of {missing}")
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

    def copy(self, packages: Sequence[LockedPackage], target: "Store") -> int:
        new = [package for package in packages if not target.has(package)]
        with temporary_root(target.directory) as folder:
            for package in new:
                shutil.copyfile(self.verify(package), folder / package.sha256)
                target.add(folder / package.sha256, package)
        return len(new)

    def name_wheels(self, wheels: Sequence[Wheel], folder: Path) -> None:
        """Link wheels under their names in a folder, for other installers."""
        folder.mkdir(exist_ok=True)
        for wheel in wheels:
            link = folder / wheel.file
            link.unlink(missing_ok=True)
            link.symlink_to(os.path.relpath(self.path(wheel.sha256), folder.resolve()))

    def _batches(self, packages: Sequence[_PackageT]) -> Iterator[tuple[list[_PackageT], int, int]]:
        missing = [package for package in packages if not self.has(package)]
        count = 0
        while count < len(missing):
            sizes = accumulate(package.size for package in missing[count : count + _BATCH])
            batch = missing[count : count + max(1, sum(size <= _BATCH_BYTES for size in sizes))]
            yield batch, count, len(missing)
            count += len(batch)


def _shorten_error(error: ProvisionError, folder: Path, hint: str) -> ProvisionError:
    if "No space left on device" in error.message:
        return disk_full(folder.parent)
    lines = [line for line in error.message.splitlines() if line.lower().startswith(("e:", "error:"))]
    return ProvisionError("\n".join(["packages cannot be fetched:", *lines[:4]]), hint) if lines else error


@dataclass(frozen=True)
class Locked:
    """The locked environment; ``digest`` is a SHA-256 over its files in ``provision/``."""

    recipe: Recipe
    debian: DebianLock
    wheels: tuple[Wheel, ...]
    digest: str
    files: Mapping[str, str]

    @property
    def packages(self) -> tuple[DebianPackage | Wheel, ...]:
        return (*self.debian.packages, *self.wheels)

    @property
    def machine_packages(self) -> tuple[DebianPackage | Wheel, ...]:
        return (*self.debian.packages, *self.debian.machine, *self.wheels)

    @property
    def labels(self) -> dict[str, str]:
        return {
            "org.opencontainers.image.title": "utvm environment",
            "org.opencontainers.image.version": utvm.__version__,
            "org.opencontainers.image.created": self.debian.date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "utvm.environment": self.digest,
            **{
                f"utvm.{name}": hashlib.sha256(self.files[name].encode()).hexdigest()
                for name in ("debian.lock", "pylock.toml")
            },
        }


def load_lock_files(folder: Path = PROVISION) -> Locked:
    recipe = load_recipe(folder)
    packages = debian.load_lock(folder / "debian.lock")
    debian.check_current(packages, recipe)
    wheels = python_lock.select_wheels(python_lock.load_wheels(folder / "pylock.toml", recipe.python), recipe)
    files = read_lock_files(folder)
    return Locked(recipe, packages, wheels, files_digest(files), files)


def fetch(
    locked: Locked,
    store: Store,
    archive: Path | None,
    mirror: str,
    say: Progress = lambda _: None,
    *,
    machine: bool = False,
) -> None:
    if archive is not None:
        packages = locked.machine_packages if machine else locked.packages
        missing = [package for package in packages if not store.has(package)]
        Store(archive).copy(missing, store)
        return
    from_debian = (*locked.debian.packages, *(locked.debian.machine if machine else ()))
    if not all(map(store.has, from_debian)):
        store.fetch_debian(from_debian, debian.mirrors(locked.recipe.debian, mirror), say)
    store.fetch_wheels(locked.wheels, locked.recipe.python, say)


_DEBIAN, _PYTHON = "debian.lock", "pylock.toml"
_HINT = "give a folder with debian.lock and pylock.toml, or a revision such as HEAD~1"


_Packages = Mapping[str, DebianPackage] | Mapping[str, Wheel]


def describe(old: str, new: str) -> list[str]:
    """Describe each difference of two locks in a line.

    Args:
        old, new: a folder with ``debian.lock`` and ``pylock.toml``, or a git revision.
    """
    python = load_recipe().python
    with temporary_root(ROOT / "build") as folder:
        folders = [_lock_folder(source, folder / str(number)) for number, source in enumerate((old, new))]
        debian = [load_lock(path / _DEBIAN) for path in folders]
        wheels = [load_wheels(path / _PYTHON, python) for path in folders]
    lines = list(_changes("Debian", *({package.name: package for package in lock.packages} for lock in debian)))
    lines += _changes("Machine", *({package.name: package for package in lock.machine} for lock in debian))
    lines += _changes("Python", *({wheel.name: wheel for wheel in lock} for lock in wheels))
    if debian[0].date != debian[1].date:
        lines.append(f"Debian's indices: of {debian[0].date:%Y-%m-%d %H:%M}, now of {debian[1].date:%Y-%m-%d %H:%M}")
    return lines


def _changes(kind: str, old: _Packages, new: _Packages) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before is None and after is not None:
            yield f"{kind}: {name} {after.version} is new"
        elif after is None and before is not None:
            yield f"{kind}: {name} {before.version} is gone"
        elif before is not None and after is not None:
            if before.version != after.version:
                source = " (security)" if getattr(after, "archive", "").endswith("security") else ""
                yield f"{kind}: {name} {before.version} became {after.version}{source}"
            elif before.sha256 != after.sha256:
                yield f"{kind}: {name} {after.version} has another file, though its version is the same"


def _lock_folder(source: str, folder: Path) -> Path:
    if Path(source).is_dir():
        if lacking := [name for name in (_DEBIAN, _PYTHON) if not (Path(source) / name).is_file()]:
            raise ConfigError(f"{source} has no {' and no '.join(lacking)}", _HINT)
        return Path(source)
    folder.mkdir()
    for name in (_DEBIAN, _PYTHON):
        text = run_tool(["git", "-C", ROOT, "show", f"{source}:provision/{name}"], error=ConfigError, hint=_HINT)
        (folder / name).write_text(text, encoding="utf-8")
    return folder
