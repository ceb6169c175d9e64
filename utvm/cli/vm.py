# SPDX-License-Identifier: Apache-2.0
"""Functions of ``commands/vm.yaml``."""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from utvm import boards, selection
from utvm.base import fields_of
from utvm.base.storage import files, lock
from utvm.cli import choices, env
from utvm.cli.output import OUT, print_step, print_steps, show_progress
from utvm.cli.root_hil import run_suites
from utvm.environment import builds
from utvm.environment.locked import load_lock_files, temporary_root
from utvm.environment.machine import settings, vagrant
from utvm.environment.machine.machine import READY, InMachine, Machine
from utvm.errors import ConfigError, ExitCode
from utvm.paths import ROOT, work

_MB = 1_000_000


def box(image: choices.ImageChoice) -> None:
    builds.check_key(image.sign)
    locked = load_lock_files()
    if image.no_cache or not builds.BOX_FOLDER.exists():
        builds.announce_box(locked, print_step)
    with show_progress("fetching") as step:
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
            "seconds": env.round_seconds(result.seconds),
        }
    )


def release(image: choices.ImageChoice, output: str) -> None:
    builds.check_key(image.sign)
    target = Path(output) if output else work() / "release"
    files.check_folder(target)
    changed = builds.changes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    locked = load_lock_files()
    if image.no_cache or not builds.IMAGE_FOLDER.exists():
        builds.announce_image(locked, print_step)
    if image.no_cache or not builds.BOX_FOLDER.exists():
        builds.announce_box(locked, print_step)
    with show_progress("fetching") as step, temporary_root(ROOT / "build") as package:
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
    OUT.print(f"registry     .ci/publish {folder} HOST/NAME pushes the image")
    OUT.results({"digests": digests, "folder": str(folder)})


def test(where: selection.BoardSelection, reports: selection.ReportChoice, box: str, suite: str, usb: str) -> ExitCode:
    boards.load(where.board)
    records = settings.records_of_test()
    # Its name is fixed: another test would remove this one's machine.
    with lock.hold(f"vm.test {records.name}"), print_steps("asking libvirt") as say:
        machine = Machine(records, say=say)
        try:
            machine.destroy()  # left by a killed test
            location = InMachine(say, machine, box)
            return run_suites(
                where, selection.SuiteChoice(suite), reports, selection.PlaceChoice("vm", usb=usb), location
            )
        finally:
            machine.destroy()
            OUT.print("the machine is removed")


def up(box: str, fresh: bool) -> None:
    begin = time.monotonic()
    with _machine() as machine:
        machine.up(box, fresh)
    OUT.print(f"the machine {machine.records.name} runs, after {time.monotonic() - begin:.0f} s")
    OUT.print("./inv vm.run './inv hil --board host', vm.run alone for a shell, vm.halt when you are done")


def run(command: str) -> int:
    words = shlex.split(command)
    return Machine().run(words) if words else Machine().shell()


def halt(suspend: bool) -> None:
    with _machine() as machine:
        if suspend:
            machine.suspend()
        else:
            machine.halt()
    OUT.print("the machine is suspended; ./inv vm.up continues" if suspend else "the machine is off; its disk stays")


def snapshot(save: str, restore: str, delete: str) -> None:
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


def status() -> None:
    with _machine() as machine:
        current = machine.status()
    OUT.results(
        {
            "name": current.records.name,
            "state": current.domain.state.value if current.domain else None,
            "made": current.facts,
            "used": current.records.is_used,
            **fields_of(current, "snapshots", "daemons", "left_over", "problem"),
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
    for box in sorted((vagrant.vagrant_home() / "boxes").glob("*/*/*/box.img")):
        name = box.relative_to(vagrant.vagrant_home() / "boxes").parts[0].replace("-VAGRANTSLASH-", "/")
        rows.append(("box", f"{name}, {box.stat().st_size // _MB} MB; rm -r {box.parents[2]}"))
    rows += [("left over", f"{leftover}; ./inv vm.destroy removes it") for leftover in current.left_over]
    OUT.table(("", ""), rows=rows, show_header=False)


def destroy() -> None:
    with _machine() as machine:
        removed = machine.destroy()
    for leftover in removed:
        OUT.print(f"removed: {leftover}")
    OUT.print("only Vagrant's boxes are left" if removed else "there was nothing to remove")


@contextmanager
def _machine() -> Iterator["Machine"]:
    with print_steps("asking libvirt") as say:
        yield Machine(say=say)
