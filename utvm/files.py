# SPDX-License-Identifier: Apache-2.0
"""Files that are written where a user says: refused at once if that cannot be, and else written whole."""

import contextlib
import os
import tempfile
import zipfile
import zlib
from pathlib import Path

from utvm.errors import ConfigError

UNREADABLE_ZIP = (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError, RuntimeError, EOFError)
"""What :mod:`zipfile` raises of an archive that is none, or a damaged one, or one that is locked."""


def check_places(*paths: str | Path) -> None:
    """Refuse files that could not be written, before there is any work for them; an empty path is none.

    Raises:
        ConfigError: naming the path, and why.
    """
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
    """Refuse a folder that could not be made or written into, before there is any work for it.

    Raises:
        ConfigError: naming the folder, and why.
    """
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
    """Write a file whole or not at all.

    Raises:
        ConfigError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
