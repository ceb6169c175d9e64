# SPDX-License-Identifier: Apache-2.0
"""Builds the container image and the virtual machine's box three times, and measures the time.

- cold: empty caches, every package fetched from the mirror and the package index;
- elsewhere: by another clone of the last commit in another folder, with empty caches, a separate Python environment,
  another umask, time zone and locale; packages come from those that the first build fetched, as from an archive;
- again: with everything cached.

The engine is not used. Run: ``.venv/bin/python benchmarks/environment.py``; as root, ``--user NAME`` lets that user
build elsewhere. Ends with 1 if two digests differ or the image is too large.
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
    """Build both with caches in a folder; return their figures, with the seconds of the complete commands."""
    result = {}
    for artifact, arguments in _COMMANDS.items():
        figures = folder / f"{artifact}.json"
        begin = time.monotonic()
        subprocess.run(
            [*inv, *arguments, "--json", figures, *options],
            cwd=folder,
            env={**os.environ, "XDG_CACHE_HOME": str(folder / "caches"), **env},
            umask=umask,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        result[artifact] = {**json.loads(figures.read_text()), "whole": time.monotonic() - begin}
    return result


def _clone(folder: Path, user: str | None) -> Sequence[str | Path]:
    """Clone the checkout into a folder, which then belongs to the user; return the command of the clone's inv."""
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
        first, second = folder / "one", folder / "another place"
        first.mkdir()
        second.mkdir()
        here = (sys.executable, "-m", "utvm")
        packages = first / "caches" / "utvm" / "packages"
        cold = _build(first, here, TZ="UTC", LC_ALL="C")
        there = _clone(second, user)
        # It installs Python packages first.
        subprocess.run([*there, "--list"], stdout=subprocess.DEVNULL, check=True)
        builds = {
            "cold": cold,
            "elsewhere": _build(
                second, there, f"--mirror={packages}", umask=0o077, TZ="Asia/Tokyo", LC_ALL="de_DE.UTF-8"
            ),
            "again": _build(first, here),
        }
    console = Console(soft_wrap=True)
    for artifact in _COMMANDS:
        steps = list(builds["cold"][artifact]["seconds"])
        table = Table(artifact, "whole, s", *(f"{step}, s" for step in steps), box=None)
        for build, result in builds.items():
            spent = (result[artifact]["whole"], *(result[artifact]["seconds"][step] for step in steps))
            table.add_row(build, *(f"{value:.0f}" for value in spent))
        console.print(table)
        for build, result in builds.items():
            console.print(f"{build}: {result[artifact]['digest']}")
    unpacked = builds["cold"]["image"]["bytes"]["unpacked"]
    console.print(
        f"unpacked, the image takes {unpacked / 1e6:.0f} MB; the box {builds['cold']['box']['bytes'] / 1e6:.0f} MB"
    )
    seconds = {
        artifact: {f"{build}_s": round(result[artifact]["whole"]) for build, result in builds.items()}
        for artifact in _COMMANDS
    }
    seen.keep(
        "environment",
        {
            "image": {**seconds["image"], "mb": round(unpacked / 1e6)},
            "box": {**seconds["box"], "mb": round(builds["cold"]["box"]["bytes"] / 1e6)},
        },
    )
    same = all(len({result[artifact]["digest"] for result in builds.values()}) == 1 for artifact in _COMMANDS)
    return 0 if same and unpacked < _LARGEST else 1


if __name__ == "__main__":
    sys.exit(main())
