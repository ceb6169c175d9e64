# SPDX-License-Identifier: Apache-2.0
"""Functions of ``commands/env.yaml``, ``commands/docker.yaml`` and ``commands/cache.yaml``."""

import contextlib
import itertools
import shlex
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from utvm import boards, errors, paths
from utvm.base.storage import cache
from utvm.base.storage.cache import CacheEntry, cache_root
from utvm.base.storage.files import check_folder, write_whole
from utvm.cli import choices
from utvm.cli.output import OUT, print_step, print_steps, show_progress
from utvm.environment import container, debian, engine, python_lock
from utvm.environment.audit import audit as find_advisories
from utvm.environment.audit import load_acceptances
from utvm.environment.builds import IMAGE_FOLDER, announce_image, check_key, ensure_image, make_image, sign
from utvm.environment.locked import Store, describe, fetch, load_lock_files, temporary_root
from utvm.environment.recipe import load_recipe
from utvm.probe.choice import probes_for

_MB = 1_000_000


def build_image(image: choices.ImageChoice, export_only: bool) -> None:
    check_key(image.sign)
    locked = load_lock_files()
    with contextlib.ExitStack() as stack:
        # Connect first: a missing engine is reported at once.
        client = None if export_only else stack.enter_context(engine.connect())
        if image.no_cache or not IMAGE_FOLDER.exists():
            announce_image(locked, print_step)
        step = stack.enter_context(show_progress("fetching"))
        result = make_image(locked, step, *image.source, image.no_cache)
        if client is not None and (image.no_cache or not engine.has_image(client, result)):
            step("loading it into the engine")
            engine.load_image(client, result)
    OUT.print(f"image        {result.digest}")
    OUT.print(f"environment  {locked.digest}")
    OUT.print(f"unpacked     {result.unpacked // _MB} MB")
    OUT.print(f"written to   {result.layout.parent}")
    if client is not None:
        OUT.print(f"in the engine as {' and '.join(result.tags)}")
    if image.sign:
        OUT.print(f"signature    {sign(result.layout.parent, image.sign, f'utvm environment {locked.digest}')}")
    OUT.results(
        {
            "digest": result.digest,
            "environment": locked.digest,
            "tags": result.tags,
            "bytes": {"layers": result.size, "unpacked": result.unpacked},
            "seconds": round_seconds(result.seconds),
        }
    )


def round_seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    return {step: round(spent, 3) for step, spent in seconds.items()}


def run_in_container(command: str, board: str, probe: str) -> int:
    words, extra = shlex.split(command), None
    if board or probe:
        extra = container.usb_access(probes_for(boards.load_chip(board) if board else None, probe))
    with engine.connect() as client:
        with print_steps() as say:
            image = ensure_image(client, say)
        return container.run(client, image, words, extra) if words else container.shell(client, image, extra)


def lock(source: choices.MirrorChoice, only: str, update: str, verify: bool, since: str) -> None:
    if since:
        _print_changes(since)
        return
    if verify:
        _verify(source)
        return
    if only not in ("", "debian", "python"):
        raise errors.ConfigError(f"--only {only}: not a half of the lock", "give debian or python, or leave it out")
    with temporary_root(paths.ROOT / "build") as folder:
        # In a copy, so that the locks change together or not at all.
        copy = Path(shutil.copytree(paths.PROVISION, folder / "provision"))
        recipe = load_recipe(copy)
        halves = {only} if only else {"debian", "python"}
        current_lock = debian.load_lock(copy / debian.LOCK.name) if update else None
        if current_lock:
            wheels = python_lock.load_wheels(copy / python_lock.LOCK.name, recipe.python)
            halves = _halves_with(update, halves, current_lock, wheels)
        if "python" in halves:
            python_lock.resolver()
        if "debian" in halves:
            with show_progress("resolving Debian packages"):
                bases = debian.mirrors(recipe.debian, source.mirror)
                packages = debian.resolve(recipe, bases, current_lock, update)
            debian.write_lock(packages, copy / debian.LOCK.name)
        if "python" in halves:
            with show_progress("resolving Python packages"):
                python_lock.resolve(copy, recipe.python, update)
        locked = load_lock_files(copy)
        changes = describe(str(paths.PROVISION), str(copy)) if update else []
        for path in (debian.LOCK, python_lock.LOCK):
            write_whole(path, (copy / path.name).read_bytes())
    counts = {"debian": len(locked.debian.packages), "python": len(locked.wheels)}
    OUT.results({"environment": locked.digest, "packages": counts, "changes": changes})
    for line in changes:
        OUT.print(line)
    OUT.print(f"{counts['debian']} Debian packages, {counts['python']} Python packages")
    OUT.print(f"environment {locked.digest}")
    OUT.print("./inv env.lock --since HEAD shows what changed")


def _print_changes(since: str) -> None:
    lines = describe(since, str(paths.PROVISION))
    OUT.results({"differences": lines})
    for line in lines:
        OUT.print(line)
    OUT.print(f"{len(lines)} differences" if lines else "no difference")


def _verify(source: choices.MirrorChoice) -> None:
    locked = load_lock_files()
    OUT.print("environment.yaml, debian.txt, python.in and their locks belong together")
    store = Store()
    with show_progress("fetching") as step:
        fetch(locked, store, None, source.mirror, step, machine=True)
        step("hashing")
        size = sum(store.verify(package).stat().st_size for package in locked.machine_packages)
    count = len(locked.machine_packages)
    OUT.print(f"{count} package files, {size // _MB} MB, have the SHA-256 of the locks")
    OUT.print(f"environment {locked.digest}")
    OUT.results({"environment": locked.digest, "files": count, "bytes": size})


def _halves_with(
    name: str, halves: set[str], debian_lock: debian.DebianLock, wheels: "Sequence[python_lock.Wheel]"
) -> set[str]:
    debian = {package.name for package in (*debian_lock.packages, *debian_lock.machine)}
    names = {"debian": debian, "python": {wheel.name for wheel in wheels}}
    if not (with_name := {half for half in halves if name in names[half]}):
        raise errors.ConfigError(
            f"--update {name}: it is not locked", "./inv env.lock, without --update, adds new packages"
        )
    return with_name


def audit(advisories: str, max_age: int, accepted: str) -> errors.ExitCode:
    if max_age < 0:
        raise errors.ConfigError(f"--max-age is {max_age}", "give days: 0 or more")
    acceptances = load_acceptances(Path(accepted)) if accepted else load_acceptances()
    with show_progress("reading advisories"):
        known = find_advisories(load_lock_files(), Path(advisories), max_age, acceptances)
    OUT.results(known.as_json())
    if known.findings:
        OUT.table(
            ("", "package", "version", "advisory", "fixed in"),
            rows=[
                (finding.kind, finding.package, finding.version, finding.advisory, finding.fixed or "-")
                for finding in known.findings
            ],
        )
    for finding, why in known.accepted:
        title = f"{finding.package} {finding.version}, {finding.advisory}"
        OUT.print(f"accepted until {why.until}: {title}: {why.reason}")
    for ended in known.expired:
        OUT.print(f"was accepted until {ended.until}: {ended.package}, {ended.advisory}: {ended.reason}")
    for unused in known.unused:
        OUT.print(f"accepted, but does not apply any more: {unused.package}, {unused.advisory}")
    for line in known.summaries:
        OUT.print(line)
    summary = f"advisories that apply: {len(known.findings)}" if known.findings else "no known advisory applies"
    OUT.print(f"{summary}, {len(known.accepted)} accepted" if known.accepted else summary)
    return errors.ExitCode.FAILED if known.findings else errors.ExitCode.PASSED


def archive(source: choices.MirrorChoice, output: str) -> None:
    check_folder(output)
    locked = load_lock_files()
    store, target = Store(), Store(Path(output))
    with show_progress("fetching") as step:
        fetch(locked, store, None, source.mirror, step, machine=True)
        step("copying")
        new = store.copy(locked.machine_packages, target)
    folder = Path(output) / "environments" / locked.digest
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in locked.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    target.name_wheels(locked.wheels, folder / python_lock.FOLDER)
    count = len(locked.machine_packages)
    OUT.results({"environment": locked.digest, "folder": str(folder), "files": count, "new": new})
    OUT.print(f"{output}: {new} new files; the lists and locks are in {folder}")
    OUT.print(f"rebuild without a network: ./inv docker.build --mirror {shlex.quote(str(output))}")


_KINDS = {
    "firmware": "images for boards",
    "layers": "layers of the container image and the box",
    "libraries": "compiled models",
    "objects": "common objects of images for RPC clients' modules",
    "packages": "Debian and Python package files",
    "virtual": "instruction counters of virtual boards",
}
_DAY = 86_400


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
