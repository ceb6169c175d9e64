# SPDX-License-Identifier: Apache-2.0
"""Boards as data: the boards of the project, and errors about invalid folders."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from utvm import boards
from utvm.boards import Board
from utvm.errors import ConfigError
from utvm.toolchain.compiler import Toolchain


def test_stm32f746_agrees_with_its_manual(board: Board) -> None:
    # RM0385 rev 8: section 2.2.2 (memory map), table 4 (flash), section 2.3 (320 KiB SRAM, 16 KiB ITCM).
    flash = board.region("flash")
    assert (flash.address, flash.size) == (0x0800_0000, 1024 * 1024)
    assert [size // 1024 for size in flash.sectors] == [32, 32, 32, 32, 128, 256, 256, 256]
    ram = [board.region(name) for name in ("dtcm", "sram1", "sram2")]
    assert ram[0].address == 0x2000_0000
    assert ram[-1].end == 0x2005_0000
    assert sum(region.size for region in ram) == 320 * 1024
    assert board.region("itcm").size == 16 * 1024


def test_every_board_has_a_toolchain_with_its_cpu() -> None:
    for name in boards.names():
        board = boards.load(name)
        assert Toolchain(board.toolchain).cpu(board.cpu).architecture


def test_process_is_a_board_without_a_debug_port() -> None:
    assert "debug port" not in boards.load("host").capabilities
    assert "host" in boards.names()
    assert [chip.name for chip in boards.chips()] == [name for name in boards.names() if name != "host"]
    with pytest.raises(ConfigError, match="host is a process on this computer: it has no debug port"):
        boards.load_chip("host")


def _copy(board: Board, folder: Path, change: dict[str, Any] | None = None, drop: str = "") -> Path:
    target = folder / board.name
    shutil.copytree(board.directory, target)
    content = yaml.safe_load((target / "board.yaml").read_text())
    content.update(change or {})
    content.pop(drop, None)
    (target / "board.yaml").write_text(yaml.safe_dump(content))
    return target


def test_folder_elsewhere_is_a_board(board: Board, tmp_path: Path) -> None:
    assert boards.load(str(_copy(board, tmp_path))).memory == board.memory


_RAM = {"name": "ram", "address": 0x2000_0000, "size": "64K", "kind": "ram"}
_CONSOLE = {"name": "USART1", "baud": 115200, "irqs": [9]}
_FLASH = {"name": "flash", "address": 0x0800_0000, "size": "64K", "kind": "flash"}
_LAYOUT = {"code": "flash", "data": "sram1", "stack": "dtcm", "stack_size": "8K"}
_BELOW = {"code": "flash", "data": "dtcm", "stack": "sram1", "stack_size": "1K"}
_PROBE = {"kind": "st-link", "vendor": 1, "product": 2}
_PHYSICAL = {
    "identity": {"register_name": "ID", "address": 0xE0042000, "mask": 1, "value": 1},
    "probes": [_PROBE],
    "select_serial": "serial {serial}",
}
_MODEL = {"cpu": "cortex-m7", "serial": "V", "probe": "tcp {port}", "peripherals": []}


@pytest.mark.parametrize(
    ("upper", "valid"),
    [
        ({"continues": "dtcm"}, True),
        ({"continues": "dtcm", "executable": False}, False),
        ({"continues": "dtcm", "address": 0x2001_0400}, False),
        ({"continues": "dtcm", "kind": "rom"}, False),
        ({"continues": "flash"}, False),
        ({"continues": "sram1"}, False),
        ({"continues": "no-such-region"}, False),
    ],
)
def test_adjacent_ram_continues_without_a_gap(board: Board, tmp_path: Path, upper: dict[str, Any], valid: bool) -> None:
    memory = [
        {"name": "flash", "address": 0x0800_0000, "size": "1M", "kind": "flash"},
        {"name": "dtcm", "address": 0x2000_0000, "size": "64K", "kind": "ram"},
        {"name": "sram1", "address": 0x2001_0000, "size": "64K", "kind": "ram", **upper},
        {"name": "data", "address": 0x3000_0000, "size": "64K", "kind": "ram"},
    ]
    layout = {"code": "flash", "data": "data", "stack": "dtcm", "stack_size": "8K"}
    target = str(_copy(board, tmp_path, {"memory": memory, "layout": layout}))
    if valid:
        assert boards.load(target).region("sram1").continues == "dtcm"
    else:
        with pytest.raises(ConfigError, match="sram1 continues no RAM of its kind named"):
            boards.load(target)


@pytest.mark.parametrize(
    ("change", "drop", "message"),
    [
        ({}, "memory", "memory: Field required"),
        ({"colour": "red"}, "", "colour: Extra inputs are not permitted"),
        ({"clock_hz": "fast"}, "", "clock_hz: .*valid integer"),
        ({"clock_hz": 0}, "", "clock_hz: .*greater than 0"),
        ({"name": "Nucleo!"}, "", "name: "),
        ({"memory": [{**_RAM, "size": "64Q"}]}, "", r"memory\.0\.size: "),
        ({"memory": [{**_RAM, "address": -1}]}, "", r"memory\.0\.address: "),
        ({"memory": [{**_FLASH, "sectors": ["32K"]}]}, "", "sectors of flash add up to 32768"),
        ({"memory": [_RAM, {**_RAM, "name": "again"}]}, "", "names 'flash'"),
        (
            {
                "memory": [_FLASH, _RAM, {**_RAM, "name": "again"}],
                "layout": {"code": "flash", "data": "ram", "stack": "again", "stack_size": "1K"},
            },
            "",
            "ram and again overlap",
        ),
        ({"memory": [_RAM, _RAM]}, "", "two regions named ram"),
        ({"layout": {"code": "flash", "data": "sram1", "stack": "dtcm", "stack_size": "1M"}}, "", "stack_size"),
        ({"layout": {"code": "system", "data": "sram1", "stack": "dtcm", "stack_size": "1K"}}, "", "must be flash"),
        ({"physical": {**_PHYSICAL, "select_serial": "serial {sreial}"}}, "", "select_serial: .*not 'sreial'"),
        ({"physical": {**_PHYSICAL, "probes": []}}, "", r"physical\.probes: .*at least 1 item"),
        (
            {"virtual": {"model": {**_MODEL, "usb_probes": [{**_PROBE, "openocd": "../other.cfg"}]}}},
            "",
            r"usb_probes\.0\.openocd: ",
        ),
        ({"virtual": {"model": {**_MODEL, "probe": "tcp {prt}"}}}, "", r"virtual\.model\.probe: .*not 'prt'"),
        ({}, "physical", "virtual.model models a physical board"),
        ({"virtual": {}}, "", "virtual: a virtual board is either a model or an emulator"),
        ({"layout": {**_LAYOUT, "code": "sram2"}}, "", "layout.code is ram: .*start.by must be entry"),
        ({"start": {"reset": False}}, "", "start: reset and prepare need start.by: entry"),
        ({"start": {"by": "magic"}}, "", r"start\.by: .*'vectors' or 'entry'"),
        ({"console": {**_CONSOLE, "flow_control": "xon-xoff"}}, "", r"console\.flow_control: .*'rts-cts'"),
        ({"timeouts": {"start": 0}}, "", r"timeouts\.start: .*greater than 0"),
        ({"timeouts": {"reset": 1}}, "", r"timeouts\.reset: Extra inputs"),
        ({"interrupts": 10}, "", "console: irq 39 is out of range"),
        ({"interrupts": 40, "console": {**_CONSOLE, "irqs": [39, 40]}}, "", "console: irq 40 is out of range"),
        ({"console": {**_CONSOLE, "irqs": []}}, "", r"console\.irqs: .*at least 1 item"),
        ({"interrupts": 10, "console": _CONSOLE}, "", "irq 11 of stm32f7-dma is out of range"),
        ({"interrupts": 20, "console": _CONSOLE}, "", "irq 47 of stm32f7-dma is out of range"),
        ({"layout": {"code": "flash", "data": "sram1", "stack": "dtcm", "stack_size": 100}}, "", "multiple of 8"),
        ({"layout": {**_LAYOUT, "stack": "sram1"}}, "", "overflow must leave memory, but data lies in its region"),
        ({"layout": _BELOW, "cpu": "cortex-m0"}, "", "something lies below sram1, .* cortex-m0 cannot guard it"),
        ({"port": {"name": "no_such"}}, "", r"port: the folder has a port\.c too"),
        ({"hole": -1}, "", "hole: .*greater than or equal to 0"),
        ({"counter_hz": 0}, "", "counter_hz: .*greater than 0"),
        ({"clock_hz": 2**32}, "", "clock_hz: .*less than 4294967296"),
        ({"interrupts": 100_000}, "", "interrupts: .*less than or equal to 1024"),
        ({"title": "red \x1b[31m"}, "", "title: .*match pattern"),
        (
            {"memory": [{"name": "sram1", "address": 2**32 - 4096, "size": "8K", "kind": "ram"}]},
            "",
            "memory.0: sram1 ends behind the last address, 0xffffffff",
        ),
    ],
)
def test_error_names_file_key_and_expectation(
    board: Board, tmp_path: Path, change: dict[str, Any], drop: str, message: str
) -> None:
    folder = _copy(board, tmp_path, change, drop)
    with pytest.raises(ConfigError, match=message) as caught:
        boards.load(str(folder))
    assert str(folder / "board.yaml") in caught.value.message


def test_flow_control_and_timeouts_are_read(board: Board, tmp_path: Path) -> None:
    assert (board.console.flow_control, board.timeouts.start, board.timeouts.resend) == ("none", 30.0, 1.0)
    change = {"console": {**_CONSOLE, "flow_control": "rts-cts"}, "timeouts": {"start": 90, "resend": 0.5}}
    slow = boards.load(str(_copy(board, tmp_path, change)))
    assert (slow.console.flow_control, slow.timeouts.start, slow.timeouts.resend) == ("rts-cts", 90.0, 0.5)


@pytest.mark.parametrize("text", ["", "- a\n- list\n", "a: [1,\n", "\x00\xff", "!!python/object:os.system {}"])
def test_file_of_another_kind_is_refused(board: Board, tmp_path: Path, text: str) -> None:
    folder = _copy(board, tmp_path)
    (folder / "board.yaml").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=r"board\.yaml"):
        boards.load(str(folder))


@pytest.mark.parametrize("missing", ["openocd.cfg", "openocd-cmsis-dap.cfg"])
def test_incomplete_folder_is_refused(board: Board, tmp_path: Path, missing: str) -> None:
    folder = _copy(board, tmp_path)
    (folder / missing).unlink()
    with pytest.raises(ConfigError, match=f"{missing}: is missing"):
        boards.load(str(folder))


def test_board_without_a_port_uses_the_plain_one(board: Board, tmp_path: Path) -> None:
    folder = _copy(board, tmp_path, drop="console")
    (folder / "port.c").unlink()
    plain = boards.load(str(folder))
    assert plain.port_source.name == "plain.c"
    assert board.capabilities - plain.capabilities == {"console", "reset cause"}


def test_missing_port_is_an_error_that_lists_ports(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="port: there is no port 'no_such'") as caught:
        boards.load(str(_copy(boards.load("mps2-an385"), tmp_path, {"port": {"name": "no_such"}})))
    assert caught.value.hint == "ports of cortex_m: cmsdk, nrf_uarte, ns16550, pl011, plain, stm32_usart"


def test_stack_above_memory_is_guarded_where_possible(board: Board, tmp_path: Path) -> None:
    assert not board.guards_stack
    assert boards.load(str(_copy(board, tmp_path, {"layout": _BELOW}))).guards_stack
    assert boards.load("netduino2").guards_stack, "wrong addresses answer there"
    assert not boards.load("mps2-an505").guards_stack, "Armv8-M has a limit of the stack pointer"


def test_missing_toolchain_is_named_on_loading_the_board(board: Board, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no-such\.yaml") as caught:
        boards.load(str(_copy(board, tmp_path, {"toolchain": "no-such"})))
    assert "arm-none-eabi" in caught.value.hint


def test_error_about_an_unknown_board_lists_the_known() -> None:
    with pytest.raises(ConfigError) as caught:
        boards.load("stm32f747")
    assert "stm32f746" in caught.value.hint


def test_unknown_toolchain_or_cpu_lists_the_known() -> None:
    with pytest.raises(ConfigError) as caught:
        Toolchain("no-such")
    assert "arm-none-eabi" in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        Toolchain("arm-none-eabi").cpu("z80")
    assert "cortex-m7-fpv5-sp" in caught.value.hint
