# SPDX-License-Identifier: Apache-2.0
"""A Python environment of its own, of what a lock lists: for programs whose packages do not go with utvm's."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from utvm.base.process.run import run_tool
from utvm.base.storage.cache import file_digest
from utvm.base.storage.cache_entries import cache_root, use
from utvm.base.storage.lock import hold
from utvm.errors import ProvisionError

_PATIENCE = 900.0  # Seconds for some 20 MB over a slow line.


def own_python(lock: Path, what: str, say: Callable[[str], None]) -> Path:
    """Return the folder of an environment; it is made where its lock has changed.

    Args:
        lock: a list of requirements with their digests.
        what: whose it is, in a few words.
        say: is told that it is made.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache_root() / lock.stem / f"{file_digest(lock)[:16]}-{python}"
    use(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with hold(folder.name, directory=folder.parent, patience=_PATIENCE):
        if not (folder / "whole").is_file():
            say(f"making the environment of {what}: some 20 MB to fetch")
            shutil.rmtree(folder, ignore_errors=True)
            run_tool([sys.executable, "-m", "venv", folder], error=ProvisionError, timeout=_PATIENCE)
            run_tool(
                [
                    *(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
                    *("--require-hashes", "--no-deps", "--only-binary=:all:", "-r", lock),
                ],
                error=ProvisionError,
                hint="is the package index reachable?",
                timeout=_PATIENCE,
            )
            (folder / "whole").touch()
    return folder
