# SPDX-License-Identifier: Apache-2.0
"""Creates small locks and package files for tests."""

import datetime
import hashlib
from pathlib import Path

from utvm.environment.debian import DebianLock, DebianPackage
from utvm.environment.python_lock import Wheel


def deb(name: str, version: str = "1.0-1", content: bytes = b"", **other: str) -> DebianPackage:
    """A package whose file has this content."""
    content = content or f"{name} {version}".encode()
    return DebianPackage(
        name=name,
        version=version,
        architecture="amd64",
        archive=other.get("archive", "debian"),
        file=f"pool/main/{name[0]}/{name}/{name}_{version}_amd64.deb",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def debian_lock(*packages: DebianPackage, day: int = 1) -> DebianLock:
    date = datetime.datetime(2026, 1, day, 12, tzinfo=datetime.timezone.utc)
    return DebianLock(date=date, recipe="0" * 64, packages=packages)


def wheel(name: str, version: str = "1.0") -> Wheel:
    """A wheel whose file contains its name and version."""
    content = f"{name} {version}".encode()
    file = f"{name}-{version}-py3-none-any.whl"
    return Wheel(name=name, version=version, file=file, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def pylock(*files: tuple[str, str]) -> str:
    """The text of a ``pylock.toml`` with a package for each wheel, and its marker."""
    parts = ['lock-version = "1.0"', 'created-by = "a test"']
    for file, marker in files:
        name, version, *_ = file.split("-")
        sha256 = hashlib.sha256(file.encode()).hexdigest()
        row = f'{{ path = "wheels/{file}", size = 1, hashes = {{ sha256 = "{sha256}" }} }}'
        parts += ["[[packages]]", f'name = "{name}"', f'version = "{version}"', f"wheels = [{row}]"]
        parts += [f'marker = "{marker}"'] if marker else []
    return "\n".join(parts) + "\n"


def files_in(folder: Path) -> list[str]:
    """All files below a folder, and temporary folders even if they are empty."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.is_dir() or path.name.startswith(".draft-")
    )
