# SPDX-License-Identifier: Apache-2.0
"""Files of a user: read only where they have an end; refused at once if they cannot be written, and else whole."""

import contextlib
import os
import stat
import tempfile
import zipfile
import zlib
from pathlib import Path

from utvm.errors import ConfigError

UNREADABLE_ZIP = (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError, RuntimeError, EOFError)
"""What :mod:`zipfile` raises of an archive that is none, or a damaged one, or one that is locked."""


def check_readable(path: str | Path, hint: str) -> None:
    """Refuse to read what may have no end: pipes, devices, and what is empty, as files of /proc seem to be."""
    try:
        found = Path(path).stat()
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: cannot be read: there is no such file", hint) from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}", hint) from error
    if stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{path}: is a folder", hint)
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{path}: is no regular file", hint)
    if not found.st_size:
        raise ConfigError(f"{path}: is empty", hint)


def read_text(path: str | Path, hint: str = "") -> str:
    """Return what a file of a user says."""
    check_readable(path, hint)
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text", hint) from error


def check_places(*paths: str | Path) -> None:
    """Refuse files that could not be written, before there is any work for them; an empty path is none."""
    for path in filter(None, map(str, paths)):
        place = Path(path).resolve()
        if not place.parent.is_dir():
            raise ConfigError(f"{path}: its folder does not exist")
        if place.is_dir():
            raise ConfigError(f"{path}: is a folder")
        if place.exists() and not place.is_file():
            raise ConfigError(f"{path}: is no file that could be replaced")
        _try_out(place.parent, path)


def check_folder(path: str | Path) -> None:
    """Refuse a folder that could not be made or written into, before there is any work for it."""
    place = Path(path).resolve()
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    if not there.is_dir():
        raise ConfigError(f"{path}: {'is' if there == place else f'{there} is'} a file, where a folder is wanted")
    _try_out(there, path)


def _try_out(folder: Path, path: str | Path) -> None:
    # What root may do, and where nobody may, is not to be seen from the mode.
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror}", f"nothing can be made in {folder}"
        ) from error


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
