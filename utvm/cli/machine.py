"""What ``vm.*`` prints."""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.table import Table

from utvm.cli.output import OUT
from utvm.environment.machine.machine import READY, Machine
from utvm.environment.machine.vagrant import vagrant_home
from utvm.errors import ConfigError


def up(box: str, fresh: bool) -> None:
    """Have the machine running with the checkout in it.

    Raises:
        UtvmError: it cannot be.
    """
    begin = time.monotonic()
    with _telling() as machine:
        machine.up(box, fresh)
    OUT.print(f"the machine {machine.records.name} runs, after {time.monotonic() - begin:.0f} s")
    OUT.print("./inv vm.run './inv hil --board host'; ./inv vm.ssh; ./inv vm.suspend or vm.halt when you are done")


def run(command: str) -> int:
    """Run a command in the machine and return its exit code.

    Raises:
        UtvmError: it does not run.
    """
    words = shlex.split(command)
    if not words:
        raise ConfigError("no command to run", "./inv vm.run './inv hil --board host'")
    return Machine().run(words)


def open_shell() -> int:
    """Open a shell in the machine and return its exit code.

    Raises:
        UtvmError: it does not run, or there is no terminal.
    """
    return Machine().shell()


def halt() -> None:
    """Shut the machine down.

    Raises:
        UtvmError: there is none, or it does not shut down.
    """
    with _telling() as machine:
        machine.halt()
    OUT.print("the machine is off; its disk stays")


def suspend() -> None:
    """Suspend the machine to the disk.

    Raises:
        UtvmError: it does not run.
    """
    with _telling() as machine:
        machine.suspend()
    OUT.print("the machine is suspended to the disk; ./inv vm.resume or vm.up goes on")


def resume() -> None:
    """Go on with a suspended machine.

    Raises:
        UtvmError: it is not suspended.
    """
    with _telling() as machine:
        machine.resume()
    OUT.print("the machine runs")


def snapshot(save: str, restore: str, delete: str) -> None:
    """Keep, restore or forget a state of the machine; list them when none of these is asked for.

    Raises:
        UtvmError: there is no such snapshot, or no machine.
    """
    if sum(map(bool, (save, restore, delete))) > 1:
        raise ConfigError("--save, --restore and --delete exclude one another")
    with _telling() as machine:
        if save:
            machine.save(save)
            OUT.print(f"kept: ./inv vm.snapshot --restore {escape(save)} brings it back")
        elif restore:
            machine.restore(restore)
            OUT.print(f"the machine is as it was when {escape(restore)} was kept")
        elif delete:
            machine.delete(delete)
            OUT.print(f"{escape(delete)} is forgotten")
        else:
            for name, state in machine.snapshots().items():
                OUT.print(f"{escape(name)}  ({state}{', what a new machine is' if name == READY else ''})")


def destroy() -> None:
    """Remove the machine and everything of it.

    Raises:
        UtvmError: something cannot be removed.
    """
    with _telling() as machine:
        removed = machine.destroy()
    for what in removed:
        OUT.print(f"removed: {escape(what)}")
    OUT.print("nothing is left but the boxes that Vagrant keeps" if removed else "there was nothing to remove")


def status() -> None:
    """Print what there is of the machine, and what is left over."""
    with _telling() as machine:
        found = machine.status()
    table = Table(box=None, show_header=False)
    made = found.made or {}
    state = "none; ./inv vm.up makes one"
    if found.domain:
        state = found.domain.state.value if found.made else "half made; ./inv vm.up makes it anew"
    table.add_row("machine", f"{found.records.name}: {state}")
    if made:
        table.add_row("made of", f"{made['box']} {made['version']}")
        table.add_row("runs with", f"{made['runs']}: {escape(made['why'])}")
        table.add_row("USB plugs", made["plugs"].replace(",", ", "))
        table.add_row("as new", "no: commands have run in it" if found.records.used else "yes")
        table.add_row("ssh", f"ssh -F {escape(str(found.records.ssh_config))} {found.records.name}")
    if found.snapshots:
        table.add_row("snapshots", escape(", ".join(found.snapshots)))
    if found.daemons:
        daemons = ", ".join(f"{name} (process {pid})" for name, pid in found.daemons.items())
        table.add_row("started by us", f"{daemons}")
    kept = sorted((vagrant_home() / "boxes").glob("*/*/*/box.img"))
    for box in kept:
        name = box.relative_to(vagrant_home() / "boxes").parts[0].replace("-VAGRANTSLASH-", "/")
        table.add_row("box", f"{name}, {box.stat().st_size // 1_000_000} MB; rm -r {escape(str(box.parents[2]))}")
    for what in found.left_over:
        table.add_row("left over", f"{escape(what)}; ./inv vm.destroy removes it")
    OUT.print(table)


@contextmanager
def _telling() -> Iterator[Machine]:
    """Print what the machine does: one line a step, so that a log has it too."""
    yield Machine(say=lambda what: OUT.print(f"[dim]{escape(what)}[/]"))
