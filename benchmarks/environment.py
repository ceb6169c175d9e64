"""The container image made twice, independently, and how long that takes.

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
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_LARGEST = 1_500_000_000


def _build(folder: Path, caches: Path, *options: str, umask: int = 0o022, **env: str) -> dict[str, Any]:
    """Build the image with caches of its own, and return its figures with the seconds of the whole command."""
    figures = folder / "figures.json"
    begin = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "utvm.cli", "docker.build", "--export-only", "--json", figures, *options],
        env={**os.environ, "XDG_CACHE_HOME": str(caches), **env},
        umask=umask,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return {**json.loads(figures.read_text()), "whole": time.monotonic() - begin}


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
    table = Table("build", "whole, s", "Debian layer, s", "Python layer, s", "unpacked, MB", box=None)
    for build, figures in seen.items():
        seconds, size = figures["seconds"], figures["bytes"]["unpacked"] / 1e6
        columns = (figures["whole"], seconds["debian"], seconds["python"], size)
        table.add_row(build, *(f"{value:.0f}" for value in columns))
    console = Console(soft_wrap=True)
    console.print(table)
    for build, figures in seen.items():
        console.print(f"{build}: {figures['digest']}")
    same = len({figures["digest"] for figures in seen.values()}) == 1
    small = all(figures["bytes"]["unpacked"] < _LARGEST for figures in seen.values())
    return 0 if same and small else 1


if __name__ == "__main__":
    sys.exit(main())
