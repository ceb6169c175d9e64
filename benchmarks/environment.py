"""The container image and the virtual machine's box made twice, independently, and how long that takes.

- cold: empty caches, every package fetched from the mirror and the package index;
- elsewhere: empty caches in another folder, with another umask, time zone and locale, and no network: the packages
  come from what the first build fetched, as from an archive;
- again: with everything cached.

The engine is left alone. Run: ``.venv/bin/python benchmarks/environment.py``. Ends with 1 if two digests differ or
the image is too big.
"""

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

_LARGEST = 1_500_000_000
_COMMANDS: Mapping[str, Sequence[str]] = {"image": ("docker.build", "--export-only"), "box": ("vm.box",)}


def _build(folder: Path, caches: Path, *options: str, umask: int = 0o022, **env: str) -> dict[str, dict[str, Any]]:
    """Build both with caches of their own; return the figures of each, and the seconds of the whole command."""
    found = {}
    for what, words in _COMMANDS.items():
        figures = folder / "figures.json"
        begin = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "utvm.cli", *words, "--json", figures, *options],
            env={**os.environ, "XDG_CACHE_HOME": str(caches), **env},
            umask=umask,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        found[what] = {**json.loads(figures.read_text()), "whole": time.monotonic() - begin}
    return found


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="utvm-benchmark-") as name:
        folder = Path(name)
        one, other = folder / "one", folder / "another place"
        packages = one / "utvm" / "packages"
        seen = {
            "cold": _build(folder, one, TZ="UTC", LC_ALL="C"),
            "elsewhere": _build(
                folder, other, "--archive", str(packages), umask=0o077, TZ="Asia/Tokyo", LC_ALL="de_DE.UTF-8"
            ),
            "again": _build(folder, one),
        }
    console = Console(soft_wrap=True)
    for what in _COMMANDS:
        steps = list(seen["cold"][what]["seconds"])
        table = Table(what, "whole, s", *(f"{step}, s" for step in steps), box=None)
        for build, made in seen.items():
            spent = (made[what]["whole"], *(made[what]["seconds"][step] for step in steps))
            table.add_row(build, *(f"{value:.0f}" for value in spent))
        console.print(table)
        for build, made in seen.items():
            console.print(f"{build}: {made[what]['digest']}")
    unpacked = seen["cold"]["image"]["bytes"]["unpacked"]
    console.print(
        f"unpacked, the image takes {unpacked / 1e6:.0f} MB; the box {seen['cold']['box']['bytes'] / 1e6:.0f} MB"
    )
    same = all(len({made[what]["digest"] for made in seen.values()}) == 1 for what in _COMMANDS)
    return 0 if same and unpacked < _LARGEST else 1


if __name__ == "__main__":
    sys.exit(main())
