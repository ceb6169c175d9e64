# SPDX-License-Identifier: Apache-2.0
"""The board riscv-spike: its counts, its arithmetic, its base address, and Spike if it is installed."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hil_tests.programs import handwritten
from tests.cli.running import inv
from tests.portions import by_day
from utvm import boards, firmware
from utvm.boards import Board
from utvm.compiler import Library
from utvm.drivers import attach, choose
from utvm.errors import ConfigError, ProbeError
from utvm.probe.virtual import start_jtag
from utvm.selection import BoardSelection
from utvm.session import HostDriven

# Most tests start an emulator.
pytestmark = pytest.mark.slow

_CORES = ("riscv-spike:core=rv32", "riscv-spike:core=rv64")
_DRIVERS = ("jtag", "qemu")
_STAND_IN = Path(__file__).parent / "probe" / "spike_stand_in.py"
_LOOP = handwritten(
    "loop", '  __asm__ volatile("1: addi %0, %0, -1\\n bnez %0, 1b" : "=r"(y[0]) : "0"(x[0]));\n  return 0;'
)
_FLOATS = handwritten(
    "floats",
    "  float a;\n  float b;\n  float c;\n  float result;\n"
    "  (void)memcpy(&a, &x[0], sizeof a);\n  (void)memcpy(&b, &x[1], sizeof b);\n"
    "  (void)memcpy(&c, &x[2], sizeof c);\n"
    "  result = (a * b) + c;\n  (void)memcpy(&y[0], &result, sizeof result);\n"
    "  result = a + b;\n  (void)memcpy(&y[1], &result, sizeof result);\n"
    "  return 0;",
    "#include <string.h>",
)


def _change_board(folder: Path, change: Callable[[dict[str, Any]], None]) -> Board:
    """Return the board with other data."""
    target = folder / "riscv-spike"
    shutil.copytree(boards.load("riscv-spike").directory, target)
    content = yaml.safe_load((target / "board.yaml").read_text())
    change(content)
    (target / "board.yaml").write_text(yaml.safe_dump(content))
    return boards.load(str(target))


def _move_regions(folder: Path, *addresses: int) -> Board:
    """Return the board with its regions at other addresses."""

    def change(content: dict[str, Any]) -> None:
        for region, address in zip(content["memory"], addresses, strict=True):
            region["address"] = address

    return _change_board(folder, change)


@pytest.mark.parametrize("name", _CORES)
def test_model_and_qemu_count_the_same_instructions(name: str, tmp_path: Path) -> None:
    """A round is two instructions (RISC-V Instruction Set Manual, Volume I)."""
    counts = {}
    for driver in _DRIVERS:
        board = boards.load(f"{name},driver={driver}")
        with (
            attach(board, "virtual", log_directory=tmp_path) as connection,
            HostDriven(connection, firmware.build(board, [_LOOP])) as session,
        ):
            counts[driver] = {
                rounds: session.run("loop", [np.full(4, rounds, np.int32)]).count for rounds in (1, 2, 3, 1000, 300_007)
            }
    assert counts["jtag"] == counts["qemu"]
    (count, *_) = counts["jtag"].values()
    assert counts["jtag"] == {rounds: count + 2 * (rounds - 1) for rounds in counts["jtag"]}


@pytest.mark.parametrize("name", _CORES)
def test_float_results_equal_numpy(name: str, tmp_path: Path) -> None:
    """Only operations that numpy fuses are fused; every NaN is the canonical one (Volume I, 11.3)."""
    board = boards.load(name)
    a, b, c = np.float32(1 + 2**-12), np.float32(1 + 2**-12), np.float32(-1)
    fused = np.float32(np.float64(a) * np.float64(b) + np.float64(c))
    assert a * b + c != fused
    with (
        attach(board, "virtual", log_directory=tmp_path) as connection,
        HostDriven(connection, firmware.build(board, [_FLOATS])) as session,
    ):

        def run(*values: int) -> list[int]:
            numbers = np.array([*values, *([0] * (4 - len(values)))], np.uint32).view(np.int32)
            (output,) = session.run("floats", [numbers]).outputs
            return [int(word) for word in output.view(np.uint32)[:2]]

        sums = [np.float32(a * b + c), np.float32(a + b)]
        assert run(*(int(value.view(np.uint32)) for value in (a, b, c))) == [int(s.view(np.uint32)) for s in sums]
        with_payload = 0x7FA0_0001
        assert run(with_payload, 0x3F80_0000, 0) == [0x7FC0_0000, 0x7FC0_0000]


@pytest.mark.parametrize("core", ["rv32", "rv64"])
def test_base_address_is_set_by_data_alone(core: str, doubler: Library, tmp_path: Path) -> None:
    moved = _move_regions(tmp_path, 0x8400_0000, 0x8600_0000, 0x87F0_0000)
    board = boards.load(f"{moved.directory}:core={core},driver=qemu")
    image = firmware.build(board, [doubler])
    assert image.segments[0][0] == 0x8400_0000
    with attach(board, "virtual", log_directory=tmp_path) as connection, HostDriven(connection, image) as session:
        for _ in range(2):
            (output,) = session.run("doubler", [np.array([1, -2, 3, 2**30 - 1], np.int32)]).outputs
            assert output.tolist() == [2, -4, 6, 2**31 - 2]
            session.reset()


def test_image_is_linked_at_a_low_address(doubler: Library, tmp_path: Path) -> None:
    """The base address that Spike's early users chose; QEMU's machine has no memory there."""
    board = _move_regions(tmp_path, 0x1001_0000, 0x1201_0000, 0x1401_0000)
    image = firmware.build(board, [doubler])
    assert image.segments[0][0] == 0x1001_0000
    assert image.region_of(image.symbols["utvm_arena"]) == "data"


def _change_program(folder: Path, program: str) -> Board:
    """Return the board with another program for Spike."""
    return _change_board(folder, lambda content: content["virtual"]["simulator"].update(program=program))


def test_model_replaces_a_missing_spike(tmp_path: Path) -> None:
    board = _change_program(tmp_path, "no-such-spike")
    assert "OpenOCD" in choose(board, BoardSelection()).capabilities
    with attach(board, "auto", log_directory=tmp_path) as connection:
        assert "VIRTUAL board, a software model, JTAG by remote_bitbang" in connection.describe()
    log = (tmp_path / "openocd.log").read_text()
    assert "Examined RISC-V core; found 1 harts" in log
    assert "Error" not in log


def _write_stand_in(folder: Path) -> str:
    """Write a program that replaces Spike, and return its path for the board's file."""
    path = folder / "spike-stand-in"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {_STAND_IN} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_openocd_finds_the_tap_of_spikes_stand_in(tmp_path: Path) -> None:
    """OpenOCD with the board's script, on a stand-in that has no core."""
    board = _change_program(tmp_path, _write_stand_in(tmp_path))
    capabilities = choose(board, BoardSelection()).capabilities
    assert "OpenOCD" in capabilities
    assert not capabilities & {"console", "memory while running", "flash"}
    with pytest.raises(ProbeError, match="the target does not answer"), attach(board, "auto", log_directory=tmp_path):
        pass
    log = (tmp_path / "openocd.log").read_text()
    assert "JTAG tap: riscv.cpu tap/device found: 0xdeadbeef" in log
    assert "UNEXPECTED" not in log
    assert "Listening for remote bitbang connection on port" in (tmp_path / "spike.log").read_text()


def test_spike_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    program = tmp_path / "spike"
    program.write_text("#!/bin/sh\necho 'unknown ISA string' >&2\nexit 1\n")
    program.chmod(0o755)
    board = _change_program(tmp_path, str(program))
    with pytest.raises(ProbeError, match="unknown ISA string"), attach(board, "auto", log_directory=tmp_path):
        pass


def test_simulator_without_an_emulator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="either a model or an emulator"):
        _change_board(tmp_path, lambda content: content["virtual"].pop("emulator"))


@pytest.mark.slow
@pytest.mark.parametrize("name", by_day(_CORES, _CORES[0]))
def test_packets_pass_through_rtt_on_each_core(name: str, tmp_path: Path) -> None:
    arguments = ("--board", f"{name},driver=qemu", "--suite", "rpc", "-k", "rtt", "--report-dir", tmp_path)
    completed = inv("hil", *arguments)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "5 passed" in completed.stdout


@pytest.mark.parametrize("name", _CORES)
def test_openocd_alone_drives_the_model(name: str, tmp_path: Path) -> None:
    """Without a client: memory in every width, registers, steps, a breakpoint, a reset."""
    board = boards.load(name)
    commands = (
        "gdb_port disabled; telnet_port disabled; tcl_port disabled",
        "init; halt",
        # li a0, 5; addi a0, a0, 7; addi a0, a0, 1; j .
        "write_memory 0x80000000 32 {0x00500513 0x00750513 0x00150513 0x0000006f}",
        "write_memory 0x80000010 8 {0x11 0x22 0x33}; write_memory 0x80000014 16 {0x5544}",
        "echo memory:[read_memory 0x80000010 8 6]",
        "reg pc 0x80000000; step; step",
        "echo stepped:[get_reg -force {a0 pc}]",
        "bp 0x8000000c 4 hw; resume; wait_halt 5000",
        "echo stopped:[get_reg -force {a0 pc}]",
        "reset halt",
        "echo reset:[get_reg -force pc]:[read_memory 0x80000000 32 1]",
        "echo nowhere:[catch {read_memory 0x70000000 32 1}]",
        # The timer compares with 0, the floating-point unit is off, and an ecall is from user mode.
        "write_memory 0x02004000 32 {0 0}; echo mip:[get_reg -force mip]; echo fcsr:[get_reg -force fcsr]",
        "reg mtvec 0x80000000; reg priv 0; echo mode:[get_reg -force priv]",
        "write_memory 0x80000020 32 {0x00000073}; reg pc 0x80000020; step",
        "echo after:[get_reg -force {priv mcause}]",
        "shutdown",
    )
    with start_jtag(board, tmp_path) as machine:
        assert machine.health_match
        assert board.virtual.jtag
        select = board.virtual.jtag.probe.format(pins=machine.health_match["pins"])
        options = [option for command in (select, *commands) for option in ("-c", command)]
        completed = subprocess.run(
            ["openocd", "-f", board.openocd_config, *options], capture_output=True, text=True, check=True, timeout=60
        )
    output = "".join(completed.stderr.split())
    digits = board.cpu[2:4]
    zeros = "0" * (8 if digits == "64" else 0)
    for expected in (
        "memory:0x110x220x330x00x440x55",
        f"stepped:a00x{zeros}0000000cpc0x{zeros}80000008",
        f"stopped:a00x{zeros}0000000dpc0x{zeros}8000000c",
        f"reset:pc0x{zeros}80000000:0x500513",
        "nowhere:1",
        f"mip:mip0x{zeros}00000080",
        f"fcsr:fcsr0x{zeros}00000000",
        "mode:priv0x00",
        f"after:priv0x03mcause0x{zeros}00000008",
    ):
        assert expected in output, completed.stderr
