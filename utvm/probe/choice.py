# SPDX-License-Identifier: Apache-2.0
"""Choosing the probe that is meant, for whoever drives it: here, in a container, or in a virtual machine."""

import contextlib
from collections.abc import Callable, Iterator

from utvm import boards
from utvm.base.storage.lock import hold
from utvm.boards import Board, ProbeMatch
from utvm.errors import ConfigError, ProbeError
from utvm.probe.usb import Probe, ProbeId, detect
from utvm.selection import BoardKind


class NotPluggedIn(ProbeError):
    """The probe that was asked for is not on this computer's USB."""


def ids_of(board: Board) -> list[ProbeId]:
    """Return what USB knows a board's probes by."""
    return [ProbeId(each.kind, each.vendor, each.product) for each in (*board.probes, *board.virtual_probes)]


def match_of(board: Board, probe: Probe) -> ProbeMatch | None:
    """Return what a board's file says of a probe; None where it is none of that board's."""
    numbers = (probe.vendor, probe.product)
    of_its_kind = board.virtual_probes if probe.virtual else board.probes
    return next((match for match in of_its_kind if (match.vendor, match.product) == numbers), None)


def probes_for(board: Board | None, serial: str) -> tuple[Probe, ...]:
    """Return the probes of a board or a serial number, for whoever is to drive any of them.

    Args:
        board: whose; None for those of all boards.
    """
    if board is not None and not board.physical:
        raise ConfigError(f"{board.name} is emulated: it has no probe", "leave out --board")
    known = (board,) if board else boards.probe_boards()
    detection = detect([each for one in known for each in ids_of(one)])
    fitting = [probe for probe in detection.probes if any(match_of(one, probe) for one in known)]
    problem = detection.problem or next((probe.problem for probe in fitting if not probe.serial), "")
    found = tuple(probe for probe in fitting if serial in ("", probe.serial))
    if not found:
        which = f"probe {serial}" if serial else f"probe for {board.name}" if board else "probe"
        raise ProbeError(f"there is no {which}: {problem or 'none is plugged in'}", "see ./inv board.detect")
    if all(each.problem for each in found):
        raise ProbeError(f"the {found[0].spoken} cannot be used", found[0].problem)
    return found


def find_probe(board: Board, wish: BoardKind, serial: str) -> Probe | None:
    """Return the probe on USB to use for a board that can be plugged in, or None where another way is to be taken.

    A probe on USB that says it is virtual is used only where its serial number is given: without one, the virtual
    board is the same on every machine.
    """
    if wish == "virtual" and not serial:
        return None
    if wish == "virtual" and not board.virtual_probes:
        raise ConfigError("--serial names a physical board", "leave out --virtual")
    detection = detect(ids_of(board))
    known = [each for each in detection.probes if match_of(board, each)]
    if serial:
        # One that says nothing of its maker may be of any kind, and is refused below.
        found = [each for each in detection.probes if each.serial == serial and (each in known or each.problem)]
    else:
        found = [each for each in known if not each.virtual]
    if not found:
        if wish == "physical" or serial:
            raise _not_there(board, serial, detection.problem, known)
        return None
    if len(found) > 1 and not serial:
        serials = ", ".join(each.serial or f"(unreadable, at {each.usb_path})" for each in found)
        raise ConfigError(f"{len(found)} probes could be {board.name}: {serials}", "name one with --serial SERIAL")
    _check_usable(found[0], wish, known)
    return found[0]


@contextlib.contextmanager
def taken(board: Board, probe: Probe, wait: float, say: Callable[[str], None]) -> Iterator[Probe]:
    """Have a probe to oneself for the length of a ``with`` block: one process of this computer has it at a time.

    Args:
        probe: as :func:`find_probe` has chosen it.
        wait: seconds to wait in line for it.
        say: is told who has it, where it is to be waited for.
    """
    name = f"{probe.kind} {probe.serial}"
    with hold(name, patience=wait, waiting=lambda holder: say(f"waiting for {name}, {holder}")):
        # While we waited in line for it, it may have been plugged in anew.
        now = find_probe(board, "virtual" if probe.virtual else "physical", probe.serial)
        assert now
        yield now


def _not_there(board: Board, serial: str, problem: str, known: list[Probe]) -> NotPluggedIn:
    reason = problem or "none is plugged in"
    if serial and known:
        reason = f"plugged in: {', '.join(each.spoken for each in known)}"
    elif known:
        reason = f"what is plugged in is virtual: {', '.join(each.spoken for each in known)}"
    which = f"probe {serial}" if serial else f"probe for {board.name}"
    return NotPluggedIn(f"there is no {which}: {reason}", "see ./inv board.detect, or use --virtual")


def _check_usable(probe: Probe, wish: BoardKind, known: list[Probe]) -> None:
    """Refuse a probe that is not what was wished for, or that OpenOCD may take another one for."""
    if not probe.serial:
        # OpenOCD would take any probe of the kind.
        raise ProbeError(
            f"the probe at USB {probe.usb_path} has no serial number that can be read",
            probe.problem or "unplug and replug it, or use --virtual",
        )
    if probe.problem:
        # If it does not say who made it, it might be a virtual one.
        raise ProbeError(f"the probe {probe.serial} at USB {probe.usb_path} cannot be used", probe.problem)
    if alike := [each for each in known if each.serial == probe.serial and each != probe]:
        raise ConfigError(
            f"the probes at USB {probe.usb_path} and {alike[0].usb_path} have one serial number, {probe.serial}",
            "unplug one: OpenOCD would take either",
        )
    if probe.virtual and wish == "physical":
        raise ConfigError(f"the probe {probe.serial} is VIRTUAL: it says so itself", "leave out --physical")
    if not probe.virtual and wish == "virtual":
        raise ConfigError(f"the probe {probe.serial} is that of a physical board", "leave out --virtual")
