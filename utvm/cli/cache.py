# SPDX-License-Identifier: Apache-2.0
"""The commands ``cache.*``: what is kept under the user's cache directory, and what of it goes."""

import time
from collections.abc import Iterable

from invoke.context import Context
from rich.table import Table

from utvm.base.storage import cache_entries
from utvm.base.storage.cache_entries import CacheEntry, cache_root
from utvm.cli import task
from utvm.cli.choices import JsonChoice
from utvm.cli.output import OUT, check_json, write_json
from utvm.errors import ConfigError

_KINDS = {
    "firmware": "images for boards",
    "layers": "layers of the container image and the box",
    "libraries": "compiled models",
    "objects": "what is the same in all images of RPC clients' modules",
    "packages": "Debian and Python package files",
    "virtual": "instruction counters of virtual boards",
}
_DAY = 86_400
_MB = 1_000_000


@task(example="cache.size", page="docs/environment.md")
def size(_: Context, json: JsonChoice) -> None:
    """Print what is kept under the user's cache directory, by kind."""
    check_json(json)
    found = list(cache_entries.entries())
    table = Table("kind", "what", "entries", "MB", "oldest", box=None)
    now = time.time()
    content = {}
    for kind in sorted({entry.kind for entry in found}):
        these = [entry for entry in found if entry.kind == kind]
        days = max(0, (now - min(entry.used for entry in these)) / _DAY)
        table.add_row(kind, _KINDS.get(kind, ""), str(len(these)), _megabytes(these), f"{days:.0f} days")
        content[kind] = {"entries": len(these), "bytes": _bytes(these), "oldest_days": round(days, 1)}
    if write_json(json, {"folder": str(cache_root()), "kinds": content}):
        return
    OUT.print(table)
    OUT.print(f"{_megabytes(found)} MB in {cache_root()}; ./inv cache.prune removes what is old")


@task(
    example="cache.prune --older-than 7 --dry-run",
    page="docs/environment.md",
    help={
        "older_than": "what was not used for so many days (default: 30)",
        "dry_run": "remove nothing, only say what would be",
    },
)
def prune(_: Context, json: JsonChoice, older_than: int = 30, dry_run: bool = False) -> None:
    """Remove what was not used for long; what a running command uses stays."""
    if older_than < 0:
        raise ConfigError(f"--older-than is {older_than}", "give days: 0 or more")
    check_json(json)
    try:
        gone = list(cache_entries.prune(older_than * _DAY, dry_run))
    except OSError as error:
        raise ConfigError(
            f"{cache_root()}: the cache cannot be written: {error.strerror}", "may you write there?"
        ) from error
    kinds = {kind: [entry for entry in gone if entry.kind == kind] for kind in sorted({e.kind for e in gone})}
    content = {kind: {"entries": len(these), "bytes": _bytes(these)} for kind, these in kinds.items()}
    if write_json(json, {"folder": str(cache_root()), "removed": not dry_run, "kinds": content}):
        return
    for kind, these in kinds.items():
        OUT.print(f"{kind}: {len(these)} entries, {_megabytes(these)} MB")
    said = "would be removed" if dry_run else "removed"
    OUT.print(f"{_megabytes(gone)} MB {said}: what was not used for {older_than} days and is not in use")


def _megabytes(found: Iterable[CacheEntry]) -> str:
    return f"{_bytes(found) / _MB:.1f}"


def _bytes(found: Iterable[CacheEntry]) -> int:
    return sum(entry.size for entry in found)
