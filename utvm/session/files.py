# SPDX-License-Identifier: Apache-2.0
"""Files that an RPC client has uploaded: on this computer, in a folder of the session's, and as long as that."""

import contextlib
import tempfile
from pathlib import Path

from utvm.errors import ConfigError

UPLOAD_BYTES = 1 << 24
"""The longest packet that a client may send: a file, and a little more."""

_MOST_BYTES = 1 << 26
_MOST_FILES = 64
_LONGEST_NAME = 128


class Files:
    """The files of one session, each by a name without folders."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._sizes: dict[str, int] = {}
        self._at: Path | None = None

    @property
    def folder(self) -> Path:
        """Where files for this session may be; made when it is first asked for."""
        if self._at is None:
            self._at = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="utvm-session-")))
        return self._at

    def put(self, name: str, data: bytes) -> None:
        """Keep a file, in place of one of that name."""
        others = {other: size for other, size in self._sizes.items() if other != name}
        if len(others) >= _MOST_FILES or sum(others.values()) + len(data) > _MOST_BYTES:
            raise ConfigError(
                f"{name} is too much: a session has at most {_MOST_FILES} files of {_MOST_BYTES} bytes together",
                "remove what is not needed any more",
            )
        try:
            self._place(name).write_bytes(data)
        except OSError as error:
            raise ConfigError(f"{name} cannot be kept: {error.strerror or error}") from error
        self._sizes = {**others, name: len(data)}

    def remove(self, name: str) -> None:
        """Remove a file, or all where the name is empty; what is not there does not matter."""
        for each in (name,) if name else tuple(self._sizes):
            with contextlib.suppress(OSError):
                self._place(each).unlink()
            self._sizes.pop(each, None)

    def find(self, name: str, hint: str) -> Path:
        """Return where a file is."""
        place = self._place(name)
        if name not in self._sizes:
            raise ConfigError(f"{name} was not uploaded", hint)
        return place

    def close(self) -> None:
        """Remove all of them. Safe to call again."""
        self._sizes.clear()
        self._at = None
        self._open.close()

    def _place(self, name: str) -> Path:
        good = name not in ("", ".", "..") and "/" not in name and name.isprintable()
        if not good or len(name.encode()) > _LONGEST_NAME:
            raise ConfigError(f"{name[:_LONGEST_NAME]!r} is no name of a file", "a short name without folders")
        uploaded = self.folder / "uploaded"
        uploaded.mkdir(exist_ok=True)
        return uploaded / name
