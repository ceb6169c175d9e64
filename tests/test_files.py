# SPDX-License-Identifier: Apache-2.0
"""Files that commands write: whole, or not at all and said so."""

from pathlib import Path

import pytest

from utvm.errors import ConfigError
from utvm.files import write_whole


@pytest.mark.parametrize("place", ["no-such-folder/file", "a-folder", "a-file/file"])
def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path, place: str) -> None:
    (tmp_path / "a-folder").mkdir()
    (tmp_path / "a-file").touch()
    with pytest.raises(ConfigError, match=f"{tmp_path / place}: cannot be written: "):
        write_whole(tmp_path / place, b"content")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a-file", "a-folder"]
