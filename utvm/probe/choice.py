# SPDX-License-Identifier: Apache-2.0
"""Selects a probe, for use here, in a container or in a virtual machine."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from utvm import boards, selection
from utvm.base.storage.lock import hold
from utvm.boards.parts import ProbeMatch
from utvm.errors import ConfigError, ProbeError
from utvm.probe.usb import Probe, ProbeId, detect


class NotPluggedIn(ProbeError):
    """The selected probe is not on this computer's USB."""


# Products of vendor 0x0483 in OpenOCD 0.12's interface/stlink.cfg: V1 and V2, which have no serial line; V2-1, V3.
_ST_LINKS = (0x3744, 0x3748, 0x374B, 0x374D, 0x374E, 0x374F, 0x3752, 0x3753, 0x3754)
_WITHOUT_LINE = (0x3744, 0x3748)
# Kinds that OpenOCD finds by USB path.
_BY_PATH = ("st-link", "ftdi", "jlink")


def with_st_links(matches: tuple[ProbeMatch, ...]) -> tuple[ProbeMatch, ...]:
    """Return a board's probes; any ST-Link may take the place of another."""
    link = next((match for match in matches if match.kind == "st-link"), None)
    if link is None:
        return matches
    known = {(match.vendor, match.product) for match in matches}
    others = (
        link.model_copy(update={"product": product, "lacks": link.lacks | lacks})
        for product in _ST_LINKS
        if (link.vendor, product) not in known
        for lacks in [frozenset({"console"} if product in _WITHOUT_LINE else ())]
    )
    return (*matches, *others)


def ids_of(board: boards.Board) -> list[ProbeId]:
    """Return the USB ids of a board's probes."""
    matches = (*with_st_links(board.probes), *with_st_links(board.virtual_probes))
    return [ProbeId(match.kind, match.vendor, match.product) for match in matches]


def match_of(board: boards.Board, probe: Probe) -> ProbeMatch | None:
    """Return the board file's entry for a probe, or None."""
    numbers = (probe.vendor, probe.product)
    of_its_kind = with_st_links(board.virtual_probes if probe.virtual else board.probes)
    return next((match for match in of_its_kind if (match.vendor, match.product) == numbers), None)


def probes_for(board: boards.Board | None, serial: str) -> tuple[Probe, ...]:
    """Return the usable probes of a board, or of all if None, that match a serial number or USB path, if given."""
    if board is not None and not board.physical:
        raise ConfigError(f"{board.name} is emulated: it has no probe", "leave out --board")
    known = (board,) if board else boards.probe_boards()
    detection = detect([identity for candidate in known for identity in ids_of(candidate)])
    fitting = [probe for probe in detection.probes if any(match_of(candidate, probe) for candidate in known)]
    problem = detection.problem or next((probe.problem for probe in fitting if not probe.serial_number), "")
    probes = tuple(probe for probe in fitting if serial in ("", probe.serial_number, probe.usb_path))
    if not probes:
        which = f"probe {serial}" if serial else f"probe for {board.name}" if board else "probe"
        raise ProbeError(f"there is no {which}: {problem or 'none is plugged in'}", "see ./inv board.detect")
    if all(probe.problem for probe in probes):
        raise ProbeError(f"the {probes[0].full_name} cannot be used", probes[0].problem)
    return probes


def find_probe(board: boards.Board, request: selection.BoardKind, serial: str) -> Probe | None:
    """Return the probe on USB for a board, or None if another driver is to be used.

    A virtual probe on USB is used only if its serial number is given: without one, the virtual board is the same
    on every machine. In place of a serial number, ``serial`` may be a USB path.
    """
    if request == "virtual" and not serial:
        return None
    if request == "virtual" and not board.virtual_probes:
        raise ConfigError("--serial names a physical board", "leave out --virtual")
    detection = detect(ids_of(board))
    known = [probe for probe in detection.probes if match_of(board, probe)]
    if serial:
        # A probe with unreadable strings may be of any kind; it is rejected below.
        candidates = [
            probe
            for probe in detection.probes
            if serial in (probe.serial_number, probe.usb_path) and (probe in known or probe.problem)
        ]
    else:
        candidates = [probe for probe in known if not probe.virtual]
    if not candidates:
        if request == "physical" or serial:
            raise _not_plugged_in(board, serial, detection.problem, known)
        return None
    if len(candidates) > 1 and not serial:
        serials = ", ".join(probe.serial_number or f"(unreadable, at {probe.usb_path})" for probe in candidates)
        raise ConfigError(f"{len(candidates)} probes could be {board.name}: {serials}", "name one with --serial SERIAL")
    probe = candidates[0]
    alike = [other for other in known if other.serial_number == probe.serial_number and other != probe]
    by_path = bool(alike) and serial == probe.usb_path and probe.kind in _BY_PATH
    _check_usable(probe, request, [] if by_path else alike)
    return replace(probe, by_path=by_path)


@contextlib.contextmanager
def hold_probe(board: boards.Board, probe: Probe, wait: float, say: Callable[[str], None]) -> Iterator[Probe]:
    """Lock a probe for one process on this computer, for the length of a ``with`` block.

    Waits up to ``wait`` seconds; ``say`` is called with the holder's name before.
    """
    name = f"{probe.kind} {probe.serial_number}{f' at USB {probe.usb_path}' if probe.by_path else ''}"
    with hold(name, patience=wait, waiting=lambda holder: say(f"waiting for {name}, {holder}")):
        # It may have been replugged during the wait.
        current = find_probe(board, "virtual" if probe.virtual else "physical", probe.selector)
        assert current
        yield current


def _not_plugged_in(board: boards.Board, serial: str, problem: str, known: list[Probe]) -> NotPluggedIn:
    reason = problem or "none is plugged in"
    if serial and known:
        reason = f"plugged in: {', '.join(probe.full_name for probe in known)}"
    elif known:
        reason = f"only virtual probes are plugged in: {', '.join(probe.full_name for probe in known)}"
    which = f"probe {serial}" if serial else f"probe for {board.name}"
    return NotPluggedIn(f"there is no {which}: {reason}", "see ./inv board.detect, or use --virtual")


def _check_usable(probe: Probe, request: selection.BoardKind, alike: list[Probe]) -> None:
    if not probe.serial_number:
        # OpenOCD would take any probe of the kind.
        raise ProbeError(
            f"the probe at USB {probe.usb_path} has no serial number that can be read",
            probe.problem or "unplug and replug it, or use --virtual",
        )
    if probe.problem:
        # Without a readable manufacturer, it might be a virtual one.
        raise ProbeError(f"the probe {probe.serial_number} at USB {probe.usb_path} cannot be used", probe.problem)
    if alike:
        raise ConfigError(
            f"the probes at USB {probe.usb_path} and {alike[0].usb_path} have the same serial number, "
            f"{probe.serial_number}",
            f"name one by its USB path, such as --serial {probe.usb_path}"
            if probe.kind in _BY_PATH
            else "unplug one: OpenOCD would take either",
        )
    if probe.virtual and request == "physical":
        raise ConfigError(f"the probe {probe.serial_number} is VIRTUAL: it says so itself", "leave out --physical")
    if not probe.virtual and request == "virtual":
        raise ConfigError(f"the probe {probe.serial_number} is that of a physical board", "leave out --virtual")
