# SPDX-License-Identifier: Apache-2.0
"""The container image and the virtual machine's box made three times, and how long that takes.

- cold: empty caches, every package fetched from the mirror and the package index;
- elsewhere: by another clone of the last commit in another folder, with empty caches, a Python environment of its
  own, another umask, time zone and locale; packages come from what the first build fetched, as from an archive;
- again: with everything cached.

The engine is left alone. Run: ``.venv/bin/python benchmarks/environment.py``; as root, ``--user NAME`` has that
user build elsewhere. Ends with 1 if two digests differ or the image is too big.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import seen
from utvm.paths import ROOT

_LARGEST = 1_500_000_000
_COMMANDS: Mapping[str, Sequence[str]] = {"image": ("docker.build", "--export-only"), "box": ("vm.box",)}


def _build(
    folder: Path, inv: Sequence[str | Path], *options: str, umask: int = 0o022, **env: str
) -> dict[str, dict[str, Any]]:
    """Build both with caches in a folder; return the figures of each, and the seconds of the whole command."""
    found = {}
    for what, words in _COMMANDS.items():
        figures = folder / f"{what}.json"
        begin = time.monotonic()
        subprocess.run(
            [*inv, *words, "--json", figures, *options],
            cwd=folder,
            env={**os.environ, "XDG_CACHE_HOME": str(folder / "caches"), **env},
            umask=umask,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        found[what] = {**json.loads(figures.read_text()), "whole": time.monotonic() - begin}
    return found


def _clone(folder: Path, user: str | None) -> Sequence[str | Path]:
    """Clone the checkout into a folder, which is the user's then; return what starts the clone's commands."""
    clone = folder / "checkout"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    if user is None:
        return (clone / "inv",)
    subprocess.run(["chown", "--recursive", f"{user}:", folder], check=True)
    return ("runuser", f"--user={user}", "--", clone / "inv")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--user", help="who builds elsewhere, if this is run by root")
    user = parser.parse_args().user
    with tempfile.TemporaryDirectory(prefix="utvm-benchmark-") as name:
        folder = Path(name)
        # Another user reads the packages.
        folder.chmod(0o755)
        one, other = folder / "one", folder / "another place"
        one.mkdir()
        other.mkdir()
        here = (sys.executable, "-m", "utvm")
        packages = one / "caches" / "utvm" / "packages"
        cold = _build(one, here, TZ="UTC", LC_ALL="C")
        there = _clone(other, user)
        # It installs Python packages first.
        subprocess.run([*there, "--list"], stdout=subprocess.DEVNULL, check=True)
        builds = {
            "cold": cold,
            "elsewhere": _build(
                other, there, f"--mirror={packages}", umask=0o077, TZ="Asia/Tokyo", LC_ALL="de_DE.UTF-8"
            ),
            "again": _build(one, here),
        }
    console = Console(soft_wrap=True)
    for what in _COMMANDS:
        steps = list(builds["cold"][what]["seconds"])
        table = Table(what, "whole, s", *(f"{step}, s" for step in steps), box=None)
        for build, made in builds.items():
            spent = (made[what]["whole"], *(made[what]["seconds"][step] for step in steps))
            table.add_row(build, *(f"{value:.0f}" for value in spent))
        console.print(table)
        for build, made in builds.items():
            console.print(f"{build}: {made[what]['digest']}")
    unpacked = builds["cold"]["image"]["bytes"]["unpacked"]
    console.print(
        f"unpacked, the image takes {unpacked / 1e6:.0f} MB; the box {seen['cold']['box']['bytes'] / 1e6:.0f} MB"
    )
    seconds = {what: {f"{build}_s": round(made[what]["whole"]) for build, made in builds.items()} for what in _COMMANDS}
    seen.keep(
        "environment",
        {
            "image": {**seconds["image"], "mb": round(unpacked / 1e6)},
            "box": {**seconds["box"], "mb": round(builds["cold"]["box"]["bytes"] / 1e6)},
        },
    )
    same = all(len({made[what]["digest"] for made in builds.values()}) == 1 for what in _COMMANDS)
    return 0 if same and unpacked < _LARGEST else 1


if __name__ == "__main__":
    sys.exit(main())
