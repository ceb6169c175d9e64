# SPDX-License-Identifier: Apache-2.0
"""Runs commands with scarce disk space, permissions, files or memory, and checks the rules for all of them.

Each process has its own mounts: a full or read-only disk is a real one, and the limits are the kernel's.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm.paths import ROOT


@dataclass(frozen=True)
class Scarcity:
    """A scarce resource: lines of a shell around the command, with CACHE, OUT and BUILD as folders.

    Attributes:
        around: for the command and for ``before`` and ``after``.
        limits: for the command alone.
    """

    around: str = ""
    limits: str = ""


def _disk(size: str) -> Scarcity:
    folders = ("CACHE", "OUT", "BUILD")
    return Scarcity(" && ".join(f"mount -t tmpfs -o size={size} none ${name}" for name in folders))


_SIZES = ("4k", "16k", "64k", "256k", "1m", "2m", "4m", "8m", "16m", "32m")
SCARCE: Mapping[str, Scarcity] = {
    **{f"{size} of disk": _disk(size) for size in _SIZES},
    "a cache that cannot be written": Scarcity("mount -t tmpfs -o ro none $CACHE"),
    "an output that cannot be written": Scarcity("mount -t tmpfs -o ro none $OUT"),
    "a build folder that cannot be written": Scarcity("mount -t tmpfs -o ro none $BUILD"),
    # Without HOME, the home is looked up: its files must not be touched.
    "no home": Scarcity(
        "home=$(getent passwd $(id -u) | cut -d: -f6); mkdir -p $home/.cache\n"
        "mount -t tmpfs none $home/.cache; unset HOME XDG_CACHE_HOME XDG_STATE_HOME"
    ),
    "a home that is not there": Scarcity("export HOME=/nonexistent/x; unset XDG_CACHE_HOME XDG_STATE_HOME"),
    "16 files": Scarcity(limits="ulimit -n 16"),
    "32 files": Scarcity(limits="ulimit -n 32"),
    "512 MB of memory": Scarcity(limits="ulimit -v 524288"),
    "files of 64 kB": Scarcity(limits="ulimit -f 64"),
}
# These print several errors, about several boards or tests.
_SEVERAL_ERRORS = ("board.check", "doctor", "hil", "nightly", "project.run")


def create_folders(parent: Path) -> Mapping[str, Path]:
    """Create the folders that a command writes to, by their names in its words."""
    folders = {name: parent / name.lower() for name in ("CACHE", "OUT", "IN")}
    for folder in folders.values():
        folder.mkdir()
    return folders


def call(
    words: Sequence[str],
    folders: Mapping[str, Path],
    scarce: Scarcity,
    *,
    before: str = "",
    after: str = "",
    interrupt_after: int = 0,
    **env: str,
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end and check its output and exit code.

    Args:
        words: the command, with names of folders in it.
        folders: the folders of :func:`create_folders`.
        scarce: the scarce resource.
        before: lines of a shell that run first, with the scarce resource.
        after: lines that run afterwards, without its limits.
        interrupt_after: seconds until Ctrl-C; the command must end properly then.
    """
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    words = list(words)
    for name, folder in folders.items():
        words = [word.replace(name, str(folder)) for word in words]
    script = f'{scarce.around}\n{before}\ncode=0\n(\n{scarce.limits}\nexec "$@"\n) || code=$?\n{after}\nexit $code'
    completed = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-ec", script, "sh"),
            *(("timeout", "--signal=INT", "--preserve-status", str(interrupt_after)) if interrupt_after else ()),
            *(sys.executable, "-m", "utvm", *words),
        ],
        env={
            **os.environ,
            **{name: str(folder) for name, folder in folders.items()},
            "BUILD": str(build),
            "XDG_CACHE_HOME": str(folders["CACHE"]),
            "DOCKER_HOST": f"unix://{folders['IN']}/no-engine",
            # CPython 3.11 keeps bytecode that it wrote only in part, and later tests could not import it.
            "PYTHONDONTWRITEBYTECODE": "1",
            **env,
        },
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    output = completed.stdout + completed.stderr
    assert completed.returncode in (0, 2, 3), output
    assert "Traceback" not in output
    assert "internal error" not in output
    assert "FAILED" not in output
    if completed.returncode and words[0] not in _SEVERAL_ERRORS and "interrupted" not in output:
        # Errors inside the quoted output of a tool do not count.
        assert len(re.findall("^(?:inv: )?error: ", output, re.MULTILINE)) == 1, output
    return completed
