# SPDX-License-Identifier: Apache-2.0
"""Room on disks, looked at before work begins that would end halfway without it."""

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from utvm.errors import ProvisionError

_EACH = 16 << 20  # Bytes: more than a run's logs, its report, or the firmware of most suites.


def require_free_space(folders: Iterable[Path]) -> None:
    """See that each folder can be written and has room, all of them at the same time.

    The room is taken for a moment, which asks quotas and limits too, by files without a name: none can be left.
    """
    with contextlib.ExitStack() as held:
        for folder in folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                file = held.enter_context(tempfile.TemporaryFile(dir=folder))
                os.posix_fallocate(file.fileno(), 0, _EACH)
            except OSError as error:
                raise ProvisionError(
                    f"{folder}: {_EACH >> 20} MiB cannot be written there: {error.strerror or error}",
                    "free some room, make it writable, or choose another (--report-dir, XDG_CACHE_HOME)",
                ) from error
