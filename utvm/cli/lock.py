"""The commands ``lock.*``."""

import shutil
from pathlib import Path

from invoke.context import Context

from utvm.cli import task


@task()
def python(_: Context) -> None:
    """Resolve provision/python.in into the hash-locked provision/python.lock (needs uv)."""
    from utvm.environment.python_lock import PYTHON_LOCK

    lock_python_packages(PYTHON_LOCK)


def lock_python_packages(lock: Path) -> None:
    """Write a lock of provision/python.in: every file of every package by its SHA-256.

    Args:
        lock: the file; versions that it has already are kept where they can be.

    Raises:
        ProvisionError: uv is missing or finds no solution.
    """
    from utvm import process
    from utvm.errors import ProvisionError
    from utvm.paths import ROOT

    uv = shutil.which("uv")
    if uv is None:
        raise ProvisionError("uv is not installed", "install it with pip, then start again")
    process.run(
        [
            uv,
            "pip",
            "compile",
            "--quiet",
            "--universal",
            "--python-version=3.10",
            "--generate-hashes",
            "--no-header",
            "--no-annotate",
            "--no-emit-index-url",
            f"--output-file={lock}",
            "provision/python.in",
        ],
        cwd=ROOT,
        error=ProvisionError,
    )
