# SPDX-License-Identifier: Apache-2.0
"""Functions of ``commands/cache.yaml``: the user's cache directory."""

import itertools
import time
from collections.abc import Iterable

from utvm import errors
from utvm.base.storage import cache
from utvm.base.storage.cache import CacheEntry, cache_root
from utvm.cli.output import OUT

_KINDS = {
    "firmware": "images for boards",
    "layers": "layers of the container image and the box",
    "libraries": "compiled models",
    "objects": "common objects of images for RPC clients' modules",
    "packages": "Debian and Python package files",
    "virtual": "instruction counters of virtual boards",
}
_DAY = 86_400
_MB = 1_000_000


def prune(older_than: int, dry_run: bool) -> None:
    if older_than < 0:
        raise errors.ConfigError(f"--older-than is {older_than}", "give days: 0 or more")
    with errors.ConfigError.on_os_error(f"{cache_root()}: the cache cannot be written", "check its permissions"):
        kinds, now = _by_kind(cache.prune(older_than * _DAY, dry_run)), time.time()
    days = {kind: max(0, (now - min(entry.used for entry in removed)) / _DAY) for kind, removed in kinds.items()}
    rows = [
        (kind, _KINDS.get(kind, ""), len(removed), f"{_bytes(removed) / _MB:.1f}", f"{days[kind]:.0f} days")
        for kind, removed in kinds.items()
    ]
    OUT.table(("kind", "content", ">entries", ">MB", ">oldest"), rows=rows)
    total, verb = sum(map(_bytes, kinds.values())), "would be removed" if dry_run else "removed"
    OUT.print(f"{total / _MB:.1f} MB {verb} from {cache_root()}: not used for {older_than} days and not in use")
    content = {
        kind: {"entries": len(removed), "bytes": _bytes(removed), "oldest_days": round(days[kind], 1)}
        for kind, removed in kinds.items()
    }
    OUT.results({"folder": str(cache_root()), "removed": not dry_run, "kinds": content})


def _by_kind(entries: Iterable[CacheEntry]) -> dict[str, list[CacheEntry]]:
    ordered = sorted(entries, key=lambda entry: entry.kind)
    return {kind: list(group) for kind, group in itertools.groupby(ordered, key=lambda entry: entry.kind)}


def _bytes(entries: Iterable[CacheEntry]) -> int:
    return sum(entry.size for entry in entries)
