"""What ``env.*`` and ``docker.*`` print."""

import contextlib
import json as json_format
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from rich.markup import escape

from utvm import boards
from utvm.cli.checks import lock_python_packages
from utvm.cli.model import write_whole
from utvm.cli.output import OUT
from utvm.environment import container, debian, difference, engine, python_lock
from utvm.environment.box.box import BOX, CATALOGUE, box_name, build_box
from utvm.environment.build import Built, build, tags
from utvm.environment.drafts import draft
from utvm.environment.layers import Layers
from utvm.environment.locked import Locked, fetch, load_locked
from utvm.environment.recipe import PROVISION, load_recipe
from utvm.environment.store import Store
from utvm.environment.usb import extra_for
from utvm.errors import ConfigError
from utvm.toolchain import ROOT

_OUTPUT = ROOT / "build" / "environment"
_BOX_OUTPUT = ROOT / "build" / "box"
_MB = 1_000_000


def lock(mirror: str) -> None:
    """Resolve what the environment is made of, and say what changed.

    Raises:
        UtvmError: no solution, no network, or a file of ``provision/`` is wrong.
    """
    with draft(ROOT / "build") as folder:
        # All in a copy: the locks change when they are complete and belong together, and else not at all.
        copy = Path(shutil.copytree(PROVISION, folder / "provision"))
        recipe = load_recipe(copy)
        with OUT.status("resolving Debian packages"):
            packages = debian.resolve(recipe, debian.mirrors(recipe.debian, mirror))
        with OUT.status("resolving Python packages"):
            lock_python_packages(copy / python_lock.PYTHON_LOCK.name)
            pinned = python_lock.pins(copy / python_lock.PYTHON_LOCK.name, recipe.python)
            wheels = python_lock.resolve(recipe, pinned)
        debian.write_lock(packages, copy / debian.LOCK.name)
        python_lock.write_lock(wheels, copy / python_lock.LOCK.name)
        locked = load_locked(copy)
        for path in (debian.LOCK, python_lock.PYTHON_LOCK, python_lock.LOCK):
            write_whole(path, (copy / path.name).read_bytes())
    OUT.print(f"{len(packages.packages)} Debian packages, {len(wheels.wheels)} Python packages")
    OUT.print(f"environment {locked.digest}")
    OUT.print("./inv env.diff HEAD provision shows what changed")


def verify(mirror: str) -> None:
    """Check the locks against the lists, and every package file against the locks; fetch those that lack.

    Raises:
        UtvmError: something is not as it is locked.
    """
    locked = load_locked()
    OUT.print("environment.yaml, debian.txt, python.in and their locks belong together")
    store = Store()
    with OUT.status("hashing") as status:
        fetch(locked, store, None, mirror, status.update, machine=True)
        size = sum(store.verified(package).stat().st_size for package in locked.machine_packages)
    OUT.print(
        f"{len(locked.machine_packages)} package files, {size // _MB} MB, have the SHA-256 that the locks say"
    )
    OUT.print(f"environment {locked.digest}")


def diff(old: str, new: str) -> None:
    """Print what changed between two states of the locks.

    Raises:
        ConfigError: one is neither a folder nor a revision.
    """
    lines = difference.describe(old, new)
    for line in lines:
        OUT.print(escape(line))
    OUT.print(f"{len(lines)} differences" if lines else "no difference")


def archive(output: Path, mirror: str) -> None:
    """Save every package file, with the lists and locks, into a folder that rebuilds without a network.

    Raises:
        UtvmError: a file cannot be had, or the folder cannot be written.
    """
    locked = load_locked()
    store, target = Store(), Store(output)
    with OUT.status("fetching") as status:
        fetch(locked, store, None, mirror, status.update, machine=True)
        status.update("copying")
        new = store.copy(locked.machine_packages, target)
    folder = output / "environments" / locked.digest
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in locked.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    OUT.print(f"{escape(str(output))}: {new} new files; the lists and locks are in {escape(str(folder))}")
    OUT.print(f"rebuild without a network: ./inv docker.build --archive {escape(str(output))}")


def build_image(no_cache: bool, json: str, mirror: str, archive_path: str, export_only: bool) -> None:
    """Make the container image, write it as an OCI layout, and hand it to the Docker engine.

    Raises:
        UtvmError: the locks are wrong, a file cannot be had, a tool fails, or no engine answers.
    """
    locked, store = load_locked(), Store()
    with contextlib.ExitStack() as open_things:
        # Asked first: minutes later would be too late to hear that there is no engine.
        client = None if export_only else open_things.enter_context(engine.connected())
        status = open_things.enter_context(OUT.status("fetching"))
        fetch(locked, store, Path(archive_path) if archive_path else None, mirror, status.update)
        made = build(locked, Layers(locked, store, anew=no_cache, progress=status.update), _OUTPUT)
        if client is not None and (no_cache or not engine.has_image(client, made.image)):
            status.update("handing it to the engine")
            engine.load_image(client, made.image)
    OUT.print(f"image        {made.image.digest}")
    OUT.print(f"environment  {locked.digest}")
    OUT.print(f"unpacked     {made.image.unpacked // _MB} MB")
    OUT.print(f"written to   {escape(str(made.folder))}")
    if client is not None:
        OUT.print(f"the engine has it as {' and '.join(made.image.tags)}")
    if json:
        Path(json).write_text(_figures(locked, made), encoding="utf-8")


def build_machine_box(no_cache: bool, json: str, mirror: str, archive_path: str) -> None:
    """Make the Vagrant box and write it with its catalogue.

    Raises:
        UtvmError: the locks are wrong, a file cannot be had, or a tool fails.
    """
    locked, store = load_locked(), Store()
    with OUT.status("fetching") as status:
        fetch(locked, store, Path(archive_path) if archive_path else None, mirror, status.update, machine=True)
        layers = Layers(locked, store, anew=no_cache, progress=status.update)
        made = build_box(locked, layers, _BOX_OUTPUT, status.update)
    OUT.print(f"box          sha256:{made.digest}")
    OUT.print(f"environment  {locked.digest}")
    OUT.print(f"size         {made.size // _MB} MB")
    OUT.print(f"written to   {escape(str(made.folder))}: {BOX}, and {CATALOGUE} for {box_name(locked)}")
    if json:
        figures = {
            "digest": f"sha256:{made.digest}",
            "environment": locked.digest,
            "name": box_name(locked),
            "bytes": made.size,
            "seconds": _rounded(made.seconds),
        }
        Path(json).write_text(json_format.dumps(figures, indent=1) + "\n", encoding="utf-8")


def run_in_container(command: str, board: str = "", probe: str = "") -> int:
    """Run a command in a container and return its exit code.

    Args:
        board: whose probes on USB the container gets.
        probe: serial number of the one that it gets.

    Raises:
        UtvmError: no engine answers, or it has no image for the checkout's locks; there is no such probe.
    """
    words = shlex.split(command)
    if not words:
        raise ConfigError("no command to run", "./inv docker.run './inv hil --board host'")
    extra = _extra(board, probe)
    with engine.connected() as client:
        return container.run(client, tags(load_locked())[0], words, extra)


def open_shell(board: str = "", probe: str = "") -> int:
    """Open a shell in a container and return its exit code. Arguments as :func:`run_in_container`.

    Raises:
        UtvmError: as :func:`run_in_container`; or there is no terminal.
    """
    extra = _extra(board, probe)
    with engine.connected() as client:
        return container.shell(client, tags(load_locked())[0], extra)


def _extra(board: str, probe: str) -> container.Extra | None:
    return extra_for(boards.load_chip(board) if board else None, probe) if board or probe else None


def _figures(locked: Locked, made: Built) -> str:
    figures = {
        "digest": made.image.digest,
        "environment": locked.digest,
        "tags": made.image.tags,
        "bytes": {"layers": made.image.size, "unpacked": made.image.unpacked},
        "seconds": _rounded(made.seconds),
    }
    return json_format.dumps(figures, indent=1) + "\n"


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {step: round(spent, 3) for step, spent in seconds.items()}
