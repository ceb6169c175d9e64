# SPDX-License-Identifier: Apache-2.0
"""A virtual board that is a software model, under supervision: its process, and the doors of its probes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from utvm.base.process.interpreter import python_command
from utvm.base.process.service import Service
from utvm.boards import Board
from utvm.errors import ProbeError
from utvm.virtual.spec import NOMINAL_MILLIVOLTS, MachineSpec, Peripheral

UsbKind = Literal["st-link", "cmsis-dap"]


@dataclass(frozen=True)
class UsbProbe:
    """A virtual board's probe on USB.

    Attributes:
        kind: which one.
        listen: the socket that is its plug: ``unix:PATH``, or a TCP port of the loopback interface.
        user: user of this computer that may connect to that port besides ours.
    """

    kind: UsbKind
    listen: str
    user: str = ""


def on_bus(board: Board) -> Peripheral | None:
    """Return the model of a board's accelerator that is on the bus of its software model; None where none is."""
    if not board.accelerator:
        return None
    from utvm.boards.accelerators import accelerator_of  # It brings the compiler's own words.

    return accelerator_of(board).on_bus


def start_virtual(
    board: Board,
    log_directory: Path,
    *,
    port: int = 0,
    latency_us: int = 0,
    serial: str = "",
    millivolts: int = NOMINAL_MILLIVOLTS,
    usb: UsbProbe | None = None,
    waits: bool = False,
    anyone: bool = False,
) -> Service:
    """Return the process of a virtual board that is a software model, to be entered with ``with``.

    Its ``health_match`` has the groups ``stlink`` and ``console``: TCP ports on the loopback interface; and
    ``usb``: what the probe on USB listens on, where there is one.

    Args:
        anyone: other users of this computer may connect to these ports; otherwise they are refused.
    """
    return Service(
        f"virtual {board.name}",
        [
            *python_command("utvm.virtual"),
            f"--stlink-port={port}",
            "--console-port=0",
            f"--latency-us={latency_us}",
            f"--millivolts={millivolts}",
            f"--serial={serial or board.model.serial}",
            *(["--anyone"] if anyone else []),
            *([f"--usb={usb.kind}", f"--usb-listen={usb.listen}", f"--usb-user={usb.user}"] if usb else []),
        ],
        log=log_directory / "virtual.log",
        health=r"ready: st-link tcp (?P<stlink>\d+), console tcp (?P<console>\d+)(, \S+ usb (?P<usb>.+))?",
        error=ProbeError,
        stdin=_spec_of(board, waits).model_dump_json(),
    )


def _spec_of(board: Board, waits: bool) -> MachineSpec:
    spec = board.machine_spec(waits=waits)
    return spec.model_copy(update={"peripherals": _with_accelerator(board, spec.peripherals)})


def _with_accelerator(board: Board, peripherals: tuple[Peripheral, ...]) -> tuple[Peripheral, ...]:
    beside = on_bus(board)
    return peripherals if beside is None else (*peripherals, beside)


def start_jtag(board: Board, log_directory: Path, logic: str = "") -> Service:
    """Return the process of a virtual board behind JTAG pins, to be entered with ``with``.

    Its ``health_match`` has the groups ``pins``, the path of a socket, and ``console``, a TCP port.

    Args:
        logic: what its programmable logic holds from before.
    """
    spec = board.jtag_spec()
    spec = spec.model_copy(update={"logic": logic, "peripherals": _with_accelerator(board, spec.peripherals)})
    return Service(
        f"virtual {board.name}",
        [*python_command("utvm.virtual"), "--jtag"],
        log=log_directory / "virtual.log",
        health=r"ready: console tcp (?P<console>\d+), jtag pins (?P<pins>.+)",
        error=ProbeError,
        stdin=spec.model_dump_json(),
    )
