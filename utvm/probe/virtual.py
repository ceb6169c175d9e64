# SPDX-License-Identifier: Apache-2.0
"""Runs a software model as a virtual board: its process and the ports of its probes."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from utvm import boards, errors
from utvm.base.process import Service, interpreter
from utvm.virtual.spec import NOMINAL_MILLIVOLTS, MachineSpec, Peripheral

_LOG = "virtual.log"
UsbKind = Literal["st-link", "cmsis-dap"]


@dataclass(frozen=True)
class UsbProbe:
    """A virtual board's probe on USB.

    ``listen`` is its socket, ``unix:PATH`` or a TCP port of the loopback interface; ``user`` may connect to that
    too. ``product`` is the USB product of an ST-Link, in place of that of a V2-1.
    """

    kind: UsbKind
    listen: str
    user: str = ""
    product: int | None = None

    @property
    def name(self) -> str:
        """Kind with the product, if any: ``st-link:374e``."""
        return self.kind if self.product is None else f"{self.kind}:{self.product:04x}"


def on_bus(board: boards.Board) -> Peripheral | None:
    """Return the accelerator model on the bus of a board's software model; None if there is none."""
    if not board.accelerator:
        return None
    from utvm.boards.accelerators import accelerator_of  # It imports the compiler.

    return accelerator_of(board).on_bus


def start_virtual(
    board: boards.Board,
    log_directory: Path,
    *,
    port: int = 0,
    latency_us: int = 0,
    serial: str = "",
    millivolts: int = NOMINAL_MILLIVOLTS,
    usb: UsbProbe | None = None,
    anyone: bool = False,
) -> Service:
    """Return the process of a software model, to be entered with ``with``.

    Its ``health_match`` has the groups ``stlink`` and ``console``, TCP ports on the loopback interface, and
    ``usb``, the address of the probe on USB, if any. ``anyone`` accepts connections of other users of this
    computer.
    """
    return Service(
        f"virtual {board.name}",
        [
            *interpreter.python_command("utvm.virtual"),
            f"--stlink-port={port}",
            "--console-port=0",
            f"--latency-us={latency_us}",
            f"--millivolts={millivolts}",
            f"--serial={serial or board.model.serial_number}",
            *(["--anyone"] if anyone else []),
            *([f"--usb={usb.name}", f"--usb-listen={usb.listen}", f"--usb-user={usb.user}"] if usb else []),
        ],
        log=log_directory / _LOG,
        health=r"ready: st-link tcp (?P<stlink>\d+), console tcp (?P<console>\d+)(, \S+ usb (?P<usb>.+))?",
        error=errors.ProbeError,
        stdin=_spec_of(board).model_dump_json(),
    )


def _spec_of(board: boards.Board) -> MachineSpec:
    spec = board.machine_spec()
    return spec.model_copy(update={"peripherals": _with_accelerator(board, spec.peripherals)})


def _with_accelerator(board: boards.Board, peripherals: tuple[Peripheral, ...]) -> tuple[Peripheral, ...]:
    accelerator = on_bus(board)
    return peripherals if accelerator is None else (*peripherals, accelerator)


def read_unmodelled(log_directory: Path) -> dict[str, str]:
    """Peripherals without a model that a virtual board's firmware accessed, and where, from its log."""
    return dict(re.findall(r"touched (\S+) (at 0x\w+ from PC 0x\w+), which is not modelled", _read(log_directory)))


def read_clock(log_directory: Path) -> int | None:
    """The clock of a virtual board's core, in Hz, as its firmware has set it last; None if that is not modelled."""
    clocks = re.findall(r"core clock: (\d+) Hz", _read(log_directory))
    return int(clocks[-1]) if clocks else None


def _read(log_directory: Path) -> str:
    try:
        return (log_directory / _LOG).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def start_jtag(board: boards.Board, log_directory: Path, logic: str = "") -> Service:
    """Return the process of a virtual board behind JTAG pins, to be entered with ``with``.

    Its ``health_match`` has the groups ``pins``, the path of a socket, and ``console``, a TCP port. ``logic`` is
    the name of the bitstream already in its programmable logic.
    """
    spec = board.jtag_spec()
    spec = spec.model_copy(update={"logic": logic, "peripherals": _with_accelerator(board, spec.peripherals)})
    return Service(
        f"virtual {board.name}",
        [*interpreter.python_command("utvm.virtual"), "--jtag"],
        log=log_directory / _LOG,
        health=r"ready: console tcp (?P<console>\d+), jtag pins (?P<pins>.+)",
        error=errors.ProbeError,
        stdin=spec.model_dump_json(),
    )
