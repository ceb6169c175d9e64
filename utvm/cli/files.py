"""Files that a command writes where the user says: refused at once if that cannot be, and else written whole."""

import os
from pathlib import Path

from utvm.errors import ConfigError


def check_places(*paths: str) -> None:
    """Refuse files that could not be written; an empty path is none."""
    for path in paths:
        if path and not Path(path).resolve().parent.is_dir():
            raise ConfigError(f"{path}: its folder does not exist")
        if path and Path(path).is_dir():
            raise ConfigError(f"{path}: is a folder")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
