# SPDX-License-Identifier: Apache-2.0
"""Tar archives that depend on nothing but their content."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from utvm.files import write_whole


def write_archive(path: Path, files: Mapping[str, bytes], time: int) -> None:
    """Write files into an uncompressed tar archive.

    Names are sorted and begin with ``./``, as in the archives of TVM, whose readers open ``./metadata.json``.
    Owner, group and mode are the same for all, so equal files give equal bytes.

    Args:
        files: path below the root to content.
        time: seconds since 1970 that every file carries.
    """
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(files[name])
            member.mtime = time
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(files[name]))
    write_whole(path, stream.getvalue())
