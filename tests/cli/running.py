# SPDX-License-Identifier: Apache-2.0
"""Runs commands the way ``./inv`` does, after its first start."""

import os
import subprocess
import sys
from pathlib import Path


def inv(
    *words: object, timeout: float = 300, cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, or for that many seconds."""
    return subprocess.run(
        [sys.executable, "-m", "utvm", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
