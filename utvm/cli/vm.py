# SPDX-License-Identifier: Apache-2.0
"""The commands ``vm.*``, and what they print."""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context
from rich.table import Table

from utvm.base.storage.files import check_folder
from utvm.cli import task
from utvm.cli.choices import ImageChoice, JsonChoice
from utvm.cli.docker import rounded
from utvm.cli.output import OUT, check_json, write_json
from utvm.cli.progress import telling, working
from utvm.errors import ConfigError, ExitCode
from utvm.paths import ROOT, work
from utvm.selection import BoardSelection, ReportChoice, SuiteChoice

if TYPE_CHECKING:
    from utvm.environment.machine.machine import Machine

_MB = 1_000_000


@task(example="vm.box --no-cache", page="docs/vm.md", in_checkout=True)
def box(_: Context, image: ImageChoice) -> None:
    """Build the environment's virtual machine from the locks, as a Vagrant box with its catalogue."""
    from utvm.environment.builds import BOX, CATALOGUE, box_name, check_key, make_box, sign
    from utvm.environment.locked import load_locked

    check_json(image)
    check_key(image.sign)
    locked = load_locked()
    with working("vm.box", "fetching") as step:
        archive = Path(image.archive) if image.archive else None
        made = make_box(locked, step, archive, image.mirror, image.no_cache)
    OUT.print(f"box          sha256:{made.digest}")
    OUT.print(f"environment  {locked.digest}")
    OUT.print(f"size         {made.size // _MB} MB")
    OUT.print(f"written to   {made.folder}: {BOX}, and {CATALOGUE} for {box_name(locked)}")
    if image.sign:
        OUT.print(f"signature    {sign(made.folder, image.sign, f'utvm environment {locked.digest}')}")
    figures = {
        "digest": f"sha256:{made.digest}",
        "environment": locked.digest,
        "name": box_name(locked),
        "bytes": made.size,
        "seconds": rounded(made.seconds),
    }
    write_json(image, figures)


@task(
    example="vm.release --sign KEY",
    page="docs/vm.md",
    in_checkout=True,
    help={"output": "folder to fill (default: build/release); an earlier release in it is replaced"},
)
def release(_: Context, image: ImageChoice, output: str = "") -> None:
    """Write a signed release folder: box, image, bill of materials, wheel and notes."""
    from utvm.environment.builds import (
        build_package,
        changes,
        check_key,
        make_box,
        make_image,
        sign,
        write_notes,
        write_release,
    )
    from utvm.environment.image import tags
    from utvm.environment.locked import load_locked, temporary_root

    check_json(image)
    check_key(image.sign)
    target = Path(output) if output else work() / "release"
    check_folder(target)
    changed = changes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    locked = load_locked()
    archive = Path(image.archive) if image.archive else None
    with working("vm.release", "fetching") as step, temporary_root(ROOT / "build") as package:
        built = make_image(locked, step, archive, image.mirror, image.no_cache)
        box = make_box(locked, step, archive, image.mirror, image.no_cache)
        step("the release")
        digests = {
            "environment": f"sha256:{locked.digest}",
            "container image": built.digest,
            "box": f"sha256:{box.digest}",
            **build_package(package),
        }
        write_notes(package, digests, changed)
        folder = write_release([built.layout.parent, box.folder, package], target)
    for name, digest in digests.items():
        OUT.print(f"{digest}  {name}")
    OUT.print(f"release      {folder}")
    if image.sign:
        OUT.print(f"signature    {sign(folder, image.sign, f'utvm environment {locked.digest}')}")
    OUT.print(f"registry     docker tag {tags(locked)[0]} HOST/utvm; docker push HOST/utvm, after docker.build")
    write_json(image, {"digests": digests, "folder": str(folder)})


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
    from utvm.cli.vm_test import test_box

    return test_box(box, where, SuiteChoice(suite), reports, usb)


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
    with _telling("vm.up") as machine:
        machine.up(box, fresh)
    OUT.print(f"the machine {machine.records.name} runs, after {time.monotonic() - begin:.0f} s")
    OUT.print("./inv vm.run './inv hil --board host', vm.run alone for a shell, vm.halt when you are done")


@task(
    example="vm.run './inv hil --board host'",
    page="docs/vm.md",
    in_checkout=True,
    positional=["command"],
    file_optional=True,
    help={"command": "program and arguments, as one word (default: an interactive shell)"},
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
    with _telling("vm.halt") as machine:
        if suspend:
            machine.suspend()
        else:
            machine.halt()
    OUT.print(
        "the machine is suspended; ./inv vm.up continues" if suspend else "the machine is off; its disk stays"
    )


@task(
    example="vm.snapshot --save before",
    page="docs/vm.md",
    in_checkout=True,
    help={
        "save": "save the machine's state under this name",
        "restore": "restore this state; the current one is lost",
        "delete": "delete this state",
    },
)
def snapshot(_: Context, json: JsonChoice, save: str = "", restore: str = "", delete: str = "") -> None:
    """List, save, restore or delete snapshots of the virtual machine."""
    from utvm.environment.machine.machine import READY

    if sum(map(bool, (save, restore, delete))) > 1:
        raise ConfigError("--save, --restore and --delete exclude one another", "give one of them")
    check_json(json)
    with _telling("vm.snapshot") as machine:
        if save:
            machine.save(save)
            OUT.print(f"kept: ./inv vm.snapshot --restore {shlex.quote(save)} brings it back")
        elif restore:
            machine.restore(restore)
            OUT.print(f"the machine is as it was when {restore} was kept")
        elif delete:
            machine.delete(delete)
            OUT.print(f"{delete} is forgotten")
        elif not write_json(json, snapshots := machine.snapshots()):
            for name, state in snapshots.items():
                OUT.print(f"{name}  ({state}{', what a new machine is' if name == READY else ''})")


@task(example="vm.status", page="docs/vm.md", in_checkout=True)
def status(_: Context, json: JsonChoice) -> None:
    """Print the state of the virtual machine, its box, and leftovers of earlier ones."""
    from utvm.environment.machine.vagrant import vagrant_home

    check_json(json)
    with _telling("vm.status") as machine:
        found = machine.status()
    content = {
        "name": found.records.name,
        "state": found.domain.state.value if found.domain else None,
        "made": found.facts,
        "used": found.records.is_used,
        "snapshots": found.snapshots,
        "daemons": found.daemons,
        "left_over": found.left_over,
        "problem": found.problem,
    }
    if write_json(json, content):
        return
    table = Table(box=None, show_header=False)
    made = found.facts or {}
    state = "none; ./inv vm.up makes one"
    if found.problem:
        state = f"{'not known' if made else 'none'}: {found.problem}; ./inv vm.up starts it"
    if found.domain:
        state = found.domain.state.value if found.facts else "half made; ./inv vm.up makes it anew"
    table.add_row("machine", f"{found.records.name}: {state}")
    if made:
        table.add_row("made of", f"{made['box']} {made['version']}")
        table.add_row("runs with", f"{made['runs']}: {made['why']}")
        table.add_row("USB plugs", made["plugs"].replace(",", ", "))
        table.add_row("as new", "no: commands have run in it" if found.records.is_used else "yes")
        table.add_row("ssh", f"ssh -F {found.records.ssh_config} {found.records.name}")
    if found.snapshots:
        table.add_row("snapshots", ", ".join(found.snapshots))
    if found.daemons:
        daemons = ", ".join(f"{name} (process {pid})" for name, pid in found.daemons.items())
        table.add_row("started by us", f"{daemons}")
    kept = sorted((vagrant_home() / "boxes").glob("*/*/*/box.img"))
    for box in kept:
        name = box.relative_to(vagrant_home() / "boxes").parts[0].replace("-VAGRANTSLASH-", "/")
        table.add_row("box", f"{name}, {box.stat().st_size // 1_000_000} MB; rm -r {box.parents[2]}")
    for what in found.left_over:
        table.add_row("left over", f"{what}; ./inv vm.destroy removes it")
    OUT.print(table)


@task(example="vm.destroy", page="docs/vm.md", in_checkout=True)
def destroy(_: Context) -> None:
    """Remove the virtual machine with its disk, snapshots and network, even if incomplete."""
    with _telling("vm.destroy") as machine:
        removed = machine.destroy()
    for what in removed:
        OUT.print(f"removed: {what}")
    OUT.print("nothing is left but the boxes that Vagrant keeps" if removed else "there was nothing to remove")


@contextmanager
def _telling(command: str) -> Iterator["Machine"]:
    """Print what the machine does: one line a step, so that a log has it too, and how long each takes."""
    from utvm.environment.machine.machine import Machine

    with telling(command, "asking libvirt") as say:
        yield Machine(say=say)
