# SPDX-License-Identifier: Apache-2.0
"""``vm.test``: suites in a new machine of a box, which is then removed."""

from utvm import boards
from utvm.base.storage.lock import hold
from utvm.cli.output import OUT
from utvm.cli.progress import telling
from utvm.cli.root_hil import run_suites
from utvm.environment.machine.location import InMachine
from utvm.environment.machine.machine import Machine
from utvm.environment.machine.records import records_of_test
from utvm.errors import ExitCode
from utvm.selection import BoardSelection, PlaceChoice, ReportChoice, SuiteChoice


def test_box(box: str, where: BoardSelection, suites: SuiteChoice, reports: ReportChoice, usb: str) -> ExitCode:
    """Run suites in a new machine, with a probe on its USB, and return their verdict.

    Args:
        box: path or URL of the box's catalogue; empty for the checkout's own.
        usb: the virtual probe that is plugged in; empty for one on this computer's USB, or none.
    """
    boards.load(where.board)
    records = records_of_test()
    # There is one such machine: another test would take this one's away.
    with hold(f"vm.test {records.name}"), telling("asking libvirt") as say:
        machine = Machine(records, say=say)
        try:
            machine.destroy()  # what a test has left that was killed
            place = InMachine(say, machine, box)
            return run_suites(where, suites, reports, PlaceChoice("vm", usb=usb), place)
        finally:
            machine.destroy()
            OUT.print("the machine is gone")
