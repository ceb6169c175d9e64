# SPDX-License-Identifier: Apache-2.0
"""The commands ``board.*``; what they print is in the modules ``board_...``."""

import math

from invoke.context import Context

from utvm.cli import task
from utvm.cli.choices import CompiledChoice, DebugChoice, ExecutorChoice, JsonChoice
from utvm.errors import ExitCode
from utvm.selection import BOARD, BoardSelection, ReportChoice


@task(
    example="board.list --fits my.tflite",
    page="README.md",
    name="list",
    knows_boards=True,
    help={
        "fits": "a model: say what it takes of each board, or that it does not fit",
        "run_python": "the model is a program that you trust",
        "shape": "sizes that the model leaves open, as for model.run",
        "explain": "with --fits: print what became of each operator on each board",
    },
)
def list_(
    _: Context,
    json: JsonChoice,
    fits: str = "",
    run_python: bool = False,
    shape: str = "",
    explain: bool = False,
) -> None:
    """List the boards: the project's, and your own."""
    if fits:
        from utvm.cli.board_show import list_fitting

        list_fitting(CompiledChoice(fits, run_python, shape, explain), json)
    else:
        from utvm.cli.board_list import list_boards

        list_boards(json)


@task(
    example="board.show stm32f746",
    page="README.md",
    knows_boards=True,
    positional=["name"],
    help={"name": BOARD},
)
def show(_: Context, name: str, json: JsonChoice) -> None:
    """Print one board's memory map, probe, toolchain and console."""
    from utvm.cli.board_show import show_board

    show_board(name, json)


@task(
    example="board.new --from Keil.STM32F4xx_DFP.pack --chip STM32F405RG",
    page="docs/porting.md",
    help={
        "chip": "its name, as the file calls it; without it, the names are said",
        "from_": "what describes it: a CMSIS pack (.pack, .pdsc), a target file of probe-rs (.yaml), or pyocd",
        "svd": "its registers (.svd), which say the core and the interrupts where the other does not",
        "probe": "what it is debugged through: st-link, cmsis-dap or jlink",
        "output": "the folder to make; the board is called as it is (default: the chip's name, here)",
    },
)
def new(
    _: Context, chip: str = "", from_: str = "", svd: str = "", probe: str = "st-link", output: str = ""
) -> None:
    """Make a board's folder from a description of its chip."""
    from utvm.cli.board_new import new_board

    new_board(chip, from_, svd, probe, output)


@task(example="board.check --board ./mine --physical", page="docs/bring-up.md")
def check(_: Context, where: BoardSelection, reports: ReportChoice) -> ExitCode:
    """Try a new board part by part, up to the first that is not right, and say what to look at."""
    from utvm.cli.board_check import check_board

    return check_board(where, reports)


@task(example="board.detect", page="docs/usb.md", knows_boards=True)
def detect(_: Context, json: JsonChoice) -> None:
    """List the debug probes on USB with serial numbers and USB paths."""
    from utvm.cli.board_show import detect_boards

    detect_boards(json)


@task(
    example="board.install-udev --dry-run",
    page="docs/hosts.md",
    knows_boards=True,
    help={
        "output": "only write the file, into this folder: for another machine",
        "dry_run": "only print the rules and what would be done",
    },
)
def install_udev(_: Context, output: str = "", dry_run: bool = False) -> None:
    """Install udev rules that let you use the probes of all boards; root's part goes through sudo."""
    from utvm.cli import board_udev

    board_udev.install_udev(output, dry_run)


@task(example="board.reset --board stm32f746", page="README.md")
def reset(_: Context, where: BoardSelection) -> None:
    """Reset a board: its program starts."""
    from utvm.cli import board_run

    board_run.reset(where)


@task(
    example="board.monitor --board stm32f746 --seconds 10",
    page="README.md",
    help={"seconds": "how long (default: until Ctrl-C)"},
)
def monitor(_: Context, where: BoardSelection, seconds: float = 0.0) -> None:
    """Reset a board and print what its program says on the console."""
    from utvm.cli import board_run

    board_run.monitor(where, seconds or math.inf)


@task(
    example="board.gdb --elf app.elf --board stm32f746",
    page="docs/debugging.md",
    iterable=["command"],
    help={
        "command": "a command of GDB's, and nothing from the keyboard; several by several --command",
        "port": "start no debugger: serve this TCP port of this computer to yours, until Ctrl-C",
        "vscode": "only write .vscode/launch.json, by which VS Code does all this",
    },
)
def gdb(
    _: Context,
    what: DebugChoice,
    where: BoardSelection,
    command: list[str] | None = None,
    port: int = 0,
    vscode: bool = False,
) -> None:
    """Program a board and debug it with GDB: it stands before its first instruction, sources are found."""
    from utvm.cli import board_gdb

    board_gdb.debug(where, what, command or [], port, vscode)


@task(
    example="board.program-fpga --board pynq-z1 --bitstream vta.bit",
    page="docs/vta.md",
    help={"bitstream": "the file that Xilinx's tools wrote (.bit), for the board's chip"},
)
def program_fpga(_: Context, where: BoardSelection, bitstream: str = "") -> None:
    """Program a board's programmable logic with a bitstream, after looking whether it is one for its chip."""
    from utvm.cli import board_run

    board_run.program_fpga(where, bitstream)


@task(
    example="board.virtual --board stm32f746",
    page="docs/virtual-boards.md",
    help={
        "board": BOARD,
        "port": "TCP port for OpenOCD's st-link backend (its default, 7184; with --usb any free one)",
        "latency": "microseconds that each command of a probe takes (a real ST-Link: about 2000)",
        "usb": "a probe on USB as well: st-link or cmsis-dap, served over usbredir",
        "listen": "where it is plugged in: unix:PATH, or a TCP port of 127.0.0.1",
        "serial": "its serial number",
        "millivolts": "the board's supply (default: 3300; below 1700 the board has no power)",
    },
)
def virtual(
    _: Context,
    board: str = "",
    port: str = "",
    latency: int = 0,
    usb: str = "",
    listen: str = "",
    serial: str = "",
    millivolts: int = 3300,
) -> None:
    """Keep a virtual board running for your own OpenOCD or debugger, until Ctrl-C."""
    from utvm.cli.board_show import serve_virtual

    serve_virtual(board, port, latency, millivolts, usb=usb, listen=listen, serial=serial)


@task(
    example="board.serve my.tflite --board stm32f746",
    page="docs/rpc.md",
    help={
        "board": f"{BOARD}; host is a process on this computer",
        "listen": "address to listen on (default: 127.0.0.1, this computer only; the protocol has no passwords)",
        "port": "TCP port (default: 9090; 0 takes any free one)",
        "tracker": "HOST:PORT of a TVM RPC tracker to register with",
        "announce": "the port that the tracker tells clients, where another one leads here, as by ssh",
        "key": "RPC key that a client must give (default: any client is welcome; at a tracker, the board's name)",
        "transport": "console (default), rtt or semihosting; for host: stdio (default) or tcp",
    },
)
def serve(
    _: Context,
    model: ExecutorChoice,
    *,
    listen: str = "127.0.0.1",
    port: int = 9090,
    tracker: str = "",
    announce: int = 0,
    key: str = "",
    transport: str = "",
    where: BoardSelection,
) -> None:
    """Put a model on a board and serve the board to TVM's RPC clients, until Ctrl-C."""
    from utvm.cli.board_serve import serve_board

    serve_board(where, model, transport, listen, (port, announce), tracker, key)
