# SPDX-License-Identifier: Apache-2.0
"""The commands ``vm.*``."""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from utvm.base.storage.files import check_folder
from utvm.cli import choices, docker, progress, task
from utvm.cli.output import OUT, print_step
from utvm.errors import ConfigError, ExitCode
from utvm.paths import ROOT, work
from utvm.selection import BoardSelection, PlaceChoice, ReportChoice, SuiteChoice

if TYPE_CHECKING:
    from utvm.environment.machine.machine import Machine

_MB = 1_000_000


@task(example="vm.box --no-cache", page="docs/vm.md", json=True, in_checkout=True)
def box(_: Context, image: choices.ImageChoice) -> None:
    """Build the environment's virtual machine from the locks, as a Vagrant box with its catalogue."""
    from utvm.environment import builds
    from utvm.environment.locked import load_lock_files

    builds.check_key(image.sign)
    locked = load_lock_files()
    if image.no_cache or not builds.BOX_FOLDER.exists():
        builds.announce_box(locked, print_step)
    with progress.show("fetching") as step:
        result = builds.make_box(locked, step, *image.source, image.no_cache)
    OUT.print(f"box          sha256:{result.digest}")
    OUT.print(f"environment  {locked.digest}")
    OUT.print(f"size         {result.size // _MB} MB")
    OUT.print(f"written to   {result.folder}: {builds.BOX}, and {builds.CATALOGUE} for {builds.box_name(locked)}")
    if image.sign:
        OUT.print(f"signature    {builds.sign(result.folder, image.sign, f'utvm environment {locked.digest}')}")
    OUT.results(
        {
            "digest": f"sha256:{result.digest}",
            "environment": locked.digest,
            "name": builds.box_name(locked),
            "bytes": result.size,
            "seconds": docker.round_seconds(result.seconds),
        }
    )


@task(
    example="vm.release --sign KEY",
    page="docs/vm.md",
    json=True,
    in_checkout=True,
    help={"output": "folder to fill (default: build/release); an earlier release in it is replaced"},
)
def release(_: Context, image: choices.ImageChoice, output: str = "") -> None:
    """Write a signed release folder: box, image, bill of materials, wheel and notes."""
    from utvm.environment import builds
    from utvm.environment.image import tags
    from utvm.environment.locked import load_lock_files, temporary_root

    builds.check_key(image.sign)
    target = Path(output) if output else work() / "release"
    check_folder(target)
    changed = builds.changes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    locked = load_lock_files()
    with progress.show("fetching") as step, temporary_root(ROOT / "build") as package:
        result = builds.make_image(locked, step, *image.source, image.no_cache)
        box = builds.make_box(locked, step, *image.source, image.no_cache)
        step("the release")
        digests = {
            "environment": f"sha256:{locked.digest}",
            "container image": result.digest,
            "box": f"sha256:{box.digest}",
            **builds.build_package(package),
        }
        builds.write_notes(package, digests, changed)
        folder = builds.write_release([result.layout.parent, box.folder, package], target)
    for name, digest in digests.items():
        OUT.print(f"{digest}  {name}")
    OUT.print(f"release      {folder}")
    if image.sign:
        OUT.print(f"signature    {builds.sign(folder, image.sign, f'utvm environment {locked.digest}')}")
    OUT.print(f"registry     docker tag {tags(locked)[0]} HOST/utvm; docker push HOST/utvm, after docker.build")
    OUT.results({"digests": digests, "folder": str(folder)})


@task(
    example="vm.test --board stm32f746 --usb st-link --serial TEST0001",
    page="docs/vm.md",
    in_checkout=True,
    help={
        "box": "path or URL of the box's catalogue (default: vm.box's)",
        "suite": "the suites, as for hil (default: digits)",
        "usb": "the probe of a virtual board on its USB: st-link or cmsis-dap (default: that of --serial here)",
    },
)
def test(
    _: Context, where: BoardSelection, reports: ReportChoice, box: str = "", suite: str = "digits", usb: str = ""
) -> ExitCode:
    """Test a box: create a machine, run suites in it with a probe on its USB, and remove it."""
    from utvm import boards
    from utvm.base.storage.lock import hold
    from utvm.cli.root_hil import run_suites
    from utvm.environment.machine.machine import InMachine, Machine
    from utvm.environment.machine.settings import records_of_test

    boards.load(where.board)
    records = records_of_test()
    # Its name is fixed: another test would remove this one's machine.
    with hold(f"vm.test {records.name}"), progress.print_steps("asking libvirt") as say:
        machine = Machine(records, say=say)
        try:
            machine.destroy()  # left by a killed test
            location = InMachine(say, machine, box)
            return run_suites(where, SuiteChoice(suite), reports, PlaceChoice("vm", usb=usb), location)
        finally:
            machine.destroy()
            OUT.print("the machine is removed")


@task(
    example="vm.up",
    page="docs/vm.md",
    in_checkout=True,
    help={
        "box": "path or URL of a box catalogue for a new machine (default: that of vm.box)",
        "fresh": "restore the machine to its initial state; changes on its disk are lost",
    },
)
def up(_: Context, box: str = "", fresh: bool = False) -> None:
    """Start the environment's virtual machine, with the checkout in it."""
    begin = time.monotonic()
    with _machine() as machine:
        machine.up(box, fresh)
    OUT.print(f"the machine {machine.records.name} runs, after {time.monotonic() - begin:.0f} s")
    OUT.print("./inv vm.run './inv hil --board host', vm.run alone for a shell, vm.halt when you are done")


@task(
    example="vm.run './inv hil --board host'",
    page="docs/vm.md",
    in_checkout=True,
    positional=["command"],
    file_optional=True,
    help={"command": "program and arguments, as one argument (default: an interactive shell)"},
)
def run(_: Context, command: str) -> int:
    """Run a command, or a shell, in the virtual machine; returns the command's exit code."""
    from utvm.environment.machine.machine import Machine

    words = shlex.split(command)
    return Machine().run(words) if words else Machine().shell()


@task(
    example="vm.halt --suspend",
    page="docs/vm.md",
    in_checkout=True,
    help={"suspend": "save its memory to disk: vm.up continues where it was"},
)
def halt(_: Context, suspend: bool = False) -> None:
    """Shut the virtual machine down, or suspend it; its disk stays."""
    with _machine() as machine:
        if suspend:
            machine.suspend()
        else:
            machine.halt()
    OUT.print("the machine is suspended; ./inv vm.up continues" if suspend else "the machine is off; its disk stays")


@task(
    example="vm.snapshot --save before",
    page="docs/vm.md",
    json=True,
    in_checkout=True,
    help={
        "save": "save the machine's state under this name",
        "restore": "restore this state; the current one is lost",
        "delete": "delete this state",
    },
)
def snapshot(_: Context, save: str = "", restore: str = "", delete: str = "") -> None:
    """List, save, restore or delete snapshots of the virtual machine."""
    from utvm.environment.machine.machine import READY

    if sum(map(bool, (save, restore, delete))) > 1:
        raise ConfigError("--save, --restore and --delete exclude one another", "give one of them")
    with _machine() as machine:
        if save:
            machine.save(save)
            OUT.print(f"saved: ./inv vm.snapshot --restore {shlex.quote(save)} restores it")
        elif restore:
            machine.restore(restore)
            OUT.print(f"restored: {restore}")
        elif delete:
            machine.delete(delete)
            OUT.print(f"deleted: {delete}")
        else:
            snapshots = machine.snapshots()
            for name, state in snapshots.items():
                OUT.print(f"{name}  ({state}{', as a new machine' if name == READY else ''})")
            OUT.results(snapshots)


@task(example="vm.status", page="docs/vm.md", json=True, in_checkout=True)
def status(_: Context) -> None:
    """Print the state of the virtual machine, its box, and leftovers of earlier ones."""
    from utvm.environment.machine.vagrant import vagrant_home

    with _machine() as machine:
        current = machine.status()
    OUT.results(
        {
            "name": current.records.name,
            "state": current.domain.state.value if current.domain else None,
            "made": current.facts,
            "used": current.records.is_used,
            "snapshots": current.snapshots,
            "daemons": current.daemons,
            "left_over": current.left_over,
            "problem": current.problem,
        }
    )
    facts = current.facts or {}
    state = "none; ./inv vm.up creates one"
    if current.problem:
        state = f"{'not known' if facts else 'none'}: {current.problem}; ./inv vm.up starts it"
    if current.domain:
        state = current.domain.state.value if current.facts else "incomplete; ./inv vm.up recreates it"
    rows = [("machine", f"{current.records.name}: {state}")]
    if facts:
        rows += [
            ("made of", f"{facts['box']} {facts['version']}"),
            ("runs with", f"{facts['runs']}: {facts['why']}"),
            ("USB plugs", facts["plugs"].replace(",", ", ")),
            ("as new", "no: commands have run in it" if current.records.is_used else "yes"),
            ("ssh", f"ssh -F {current.records.ssh_config} {current.records.name}"),
        ]
    if current.snapshots:
        rows.append(("snapshots", ", ".join(current.snapshots)))
    if current.daemons:
        rows.append(("daemons", ", ".join(f"{name} (process {pid})" for name, pid in current.daemons.items())))
    for box in sorted((vagrant_home() / "boxes").glob("*/*/*/box.img")):
        name = box.relative_to(vagrant_home() / "boxes").parts[0].replace("-VAGRANTSLASH-", "/")
        rows.append(("box", f"{name}, {box.stat().st_size // _MB} MB; rm -r {box.parents[2]}"))
    rows += [("left over", f"{leftover}; ./inv vm.destroy removes it") for leftover in current.left_over]
    OUT.table("", "", rows=rows, show_header=False)


@task(example="vm.destroy", page="docs/vm.md", in_checkout=True)
def destroy(_: Context) -> None:
    """Remove the virtual machine with its disk, snapshots and network, even if incomplete."""
    with _machine() as machine:
        removed = machine.destroy()
    for leftover in removed:
        OUT.print(f"removed: {leftover}")
    OUT.print("only Vagrant's boxes are left" if removed else "there was nothing to remove")


@contextmanager
def _machine() -> Iterator["Machine"]:
    from utvm.environment.machine.machine import Machine

    with progress.print_steps("asking libvirt") as say:
        yield Machine(say=say)
