# SPDX-License-Identifier: Apache-2.0
"""Calls commands where room, rights, files or memory are scarce, and says what must hold whatever they do then.

A process has mounts of its own here, so that a full or a read-only disk is one, and the kernel's own limits.
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
    """What is scarce: lines of a shell around the command, with CACHE, OUT and BUILD as folders.

    Attributes:
        around: for it and for what comes before and behind it.
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
    # Where there is none, it is looked up: what is kept there is not to be touched.
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
# They say more than one thing, of more than one board or test.
_SAY_MORE = ("doctor", "hil", "nightly")


def folders_in(parent: Path) -> Mapping[str, Path]:
    """Make the folders that a command writes to, by the names that stand for them in its words."""
    places = {name: parent / name.lower() for name in ("CACHE", "OUT", "IN")}
    for place in places.values():
        place.mkdir()
    return places


def call(
    words: Sequence[str],
    places: Mapping[str, Path],
    scarce: Scarcity,
    *,
    before: str = "",
    after: str = "",
    ends: int = 0,
    **env: str,
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end and check what it says.

    Args:
        words: with names of places in them.
        before: lines of a shell that are run first, where it is scarce too.
        after: lines that are run behind it, without its limits.
        ends: seconds after which it gets Ctrl-C: at whatever moment that is, it ends well.
    """
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    words = list(words)
    for name, place in places.items():
        words = [word.replace(name, str(place)) for word in words]
    script = f'{scarce.around}\n{before}\ncode=0\n(\n{scarce.limits}\nexec "$@"\n) || code=$?\n{after}\nexit $code'
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-ec", script, "sh"),
            *(("timeout", "--signal=INT", "--preserve-status", str(ends)) if ends else ()),
            *(sys.executable, "-m", "utvm", *words),
        ],
        env={
            **os.environ,
            **{name: str(place) for name, place in places.items()},
            "BUILD": str(build),
            "XDG_CACHE_HOME": str(places["CACHE"]),
            "DOCKER_HOST": f"unix://{places['IN']}/no-engine",
            **env,
        },
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    said = done.stdout + done.stderr
    assert done.returncode in (0, 2, 3), said
    assert "Traceback" not in said
    assert "internal error" not in said
    assert "FAILED" not in said
    if done.returncode and words[0] not in _SAY_MORE and "interrupted" not in said:
        # Not those in what a tool has said, which is handed on.
        assert len(re.findall("^(?:inv: )?error: ", said, re.MULTILINE)) == 1, said
    return done
