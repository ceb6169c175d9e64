# SPDX-License-Identifier: Apache-2.0
"""The commands ``board.*``; the modules ``board_...`` do their work."""

from invoke.context import Context

from utvm import cli, selection
from utvm.cli.choices import SWO, CompiledChoice, DebugChoice, ModelChoice


@cli.task(
    example="board.list --fits my.tflite",
    page="docs/porting.md",
    json=True,
    name="list",
    iterable=["set_"],
    help={
        "fits": "model: show its flash and RAM on each board, or that it does not fit",
        "run_python": "trust the model file as a program",
        "set_": "shape=NAME=1,8,8,1: sizes of an input with open dimensions",
    },
)
def list_(_: Context, fits: str = "", run_python: bool = False, set_: list[str] | None = None) -> None:
    """List the boards of utvm and your own."""
    if fits:
        from utvm.cli.board_show import list_fitting

        list_fitting(ModelChoice(fits, run_python, tuple(set_ or ())))
    else:
        from utvm.cli.board_list import list_boards

        list_boards()


@cli.task(
    runs="board_show:show_board",
    example="board.show stm32f746",
    page="docs/porting.md",
    json=True,
    positional=["name"],
    help={"name": selection.BOARD},
)
def show(_: Context, name: str) -> None:
    """Print the memory map, probe, toolchain and console of a board."""


@cli.task(
    runs="board_check:new_board",
    example="board.new --from Keil.STM32F4xx_DFP.pack --chip STM32F405RG",
    page="docs/porting.md",
    help={
        "chip": "name of the chip in that file (default: list the names)",
        "from_": "description of the chip: a CMSIS pack (.pack, .pdsc), a probe-rs target file (.yaml), or pyocd",
        "svd": "registers of the chip (.svd), for the core and the interrupts if --from lacks them",
        "probe": "debug probe: st-link, cmsis-dap or jlink",
        "output": "board folder to write; its name is the board's name (default: the chip's name)",
    },
)
def new(_: Context, chip: str = "", from_: str = "", svd: str = "", probe: str = "st-link", output: str = "") -> None:
    """Create a board folder from the description of its chip."""


@cli.task(runs="board_check:check_board", example="board.check --board ./mine --physical", page="docs/bring-up.md")
def check(_: Context, where: selection.BoardSelection, reports: selection.ReportChoice) -> None:
    """Check a new board step by step, up to the first step that fails, and print what to check."""


@cli.task(runs="board_show:detect_boards", example="board.detect", page="docs/usb.md", json=True)
def detect(_: Context) -> None:
    """List the debug probes on USB, with serial numbers and USB paths."""


@cli.task(
    runs="board_udev:install_udev",
    example="board.install-udev --output -",
    page="docs/hosts.md",
    help={
        "output": "only write the rules file into this folder, for another machine; - prints the rules and the steps"
    },
)
def install_udev(_: Context, output: str = "") -> None:
    """Install udev rules that give your user access to the probes of all boards; uses sudo."""


@cli.task(runs="board_run:reset", example="board.reset --board stm32f746", page="docs/debugging.md")
def reset(_: Context, where: selection.BoardSelection) -> None:
    """Reset a board and start its program."""


@cli.task(
    runs="board_run:monitor",
    example="board.monitor --board stm32f746 --seconds 10",
    page="docs/debugging.md",
    help={"seconds": "how long (default: until Ctrl-C)", "swo": SWO},
)
def monitor(_: Context, where: selection.BoardSelection, seconds: float = 0.0, swo: str = "") -> None:
    """Reset a board and print its console."""


@cli.task(
    runs="board_gdb:debug",
    example="board.gdb --elf app.elf --board stm32f746",
    page="docs/debugging.md",
    iterable=["command"],
    help={
        "command": "GDB command to run instead of an interactive session; may be repeated",
        "port": "start no debugger: serve GDB's protocol on this TCP port of 127.0.0.1 until Ctrl-C",
        "vscode": "only write .vscode/launch.json for VS Code",
    },
)
def gdb(
    _: Context,
    what: DebugChoice,
    where: selection.BoardSelection,
    command: list[str] | None = None,
    port: int = 0,
    vscode: bool = False,
) -> None:
    """Flash a board and debug it with GDB: halted at reset, with sources."""


@cli.task(
    runs="board_run:program_fpga",
    example="board.program-fpga --board pynq-z1 --bitstream vta.bit",
    page="docs/vta.md",
    help={"bitstream": "bitstream for the board's chip (.bit), written by Xilinx's tools"},
)
def program_fpga(_: Context, where: selection.BoardSelection, bitstream: str = "") -> None:
    """Program a board's FPGA with a bitstream, after checking that it is for the board's chip."""


@cli.task(
    runs="board_show:serve_virtual",
    example="board.virtual --board stm32f746",
    page="docs/virtual-boards.md",
    help={
        "board": selection.BOARD,
        "port": "TCP port for OpenOCD's st-link backend (its default, 7184; with --usb any free one)",
        "latency": "microseconds that each probe command takes (a real ST-Link: about 2000)",
        "usb": "also serve a USB probe over usbredir: cmsis-dap or st-link, also as st-link:374e (USB product)",
        "listen": "with --usb: unix:PATH, or a TCP port of 127.0.0.1",
        "serial": "with --usb: serial number of the probe",
        "millivolts": "supply voltage of the board (default: 3300; below 1700 it is off)",
        "anyone": "let other users of this computer connect (default: only you)",
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
    anyone: bool = False,
) -> None:
    """Run a virtual board for your own OpenOCD or debugger, until Ctrl-C."""


@cli.task(
    runs="board_serve:serve_board",
    example="board.serve my.tflite --board stm32f746",
    page="docs/rpc.md",
    help={
        "board": f"{selection.BOARD}; host is a process on this computer",
        "listen": "address to listen on (default: 127.0.0.1; any other needs --anyone)",
        "port": "TCP port (default: 9090; 0 takes any free one)",
        "tracker": "HOST:PORT or unix:PATH of a TVM RPC tracker to register with",
        "announce": "port that the tracker gives to clients, if it is forwarded here, such as by ssh",
        "key": "RPC key that clients must give (default: none; with --tracker, the board's name)",
        "anyone": "accept clients of other users and computers: the protocol has no passwords",
        "transport": "console (default), rtt or semihosting; for host: stdio (default) or tcp",
    },
)
def serve(
    _: Context,
    model: CompiledChoice,
    *,
    listen: str = "127.0.0.1",
    port: int = 9090,
    tracker: str = "",
    announce: int = 0,
    key: str = "",
    anyone: bool = False,
    transport: str = "",
    where: selection.BoardSelection,
) -> None:
    """Flash a model to a board and serve the board to TVM RPC clients, until Ctrl-C."""
