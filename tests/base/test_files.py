# SPDX-License-Identifier: Apache-2.0
"""Files that commands write completely or not at all; files that they read within limits."""

import os
from pathlib import Path

import pytest

from utvm.base.storage.files import read_text, write_whole
from utvm.errors import ConfigError


@pytest.mark.parametrize("place", ["no-such-folder/file", "a-folder", "a-file/file"])
def test_unwritable_file_is_an_error_and_leaves_nothing(tmp_path: Path, place: str) -> None:
    (tmp_path / "a-folder").mkdir()
    (tmp_path / "a-file").touch()
    with pytest.raises(ConfigError, match=f"{tmp_path / place}: cannot be written: "):
        write_whole(tmp_path / place, b"content")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a-file", "a-folder"]


def test_irregular_text_file_is_refused_unread(tmp_path: Path) -> None:
    pipe, bytes_only = tmp_path / "pipe.yaml", tmp_path / "bytes.yaml"
    os.mkfifo(pipe)
    bytes_only.write_bytes(b"\xff")
    messages = {pipe: "is not a regular file", bytes_only: "is not UTF-8 text", tmp_path / "no": "no such"}
    for path, message in messages.items():
        with pytest.raises(ConfigError, match=f"{path}: .*{message}"):
            read_text(path)
