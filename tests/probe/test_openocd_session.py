# SPDX-License-Identifier: Apache-2.0
"""A real, unmodified OpenOCD on the virtual board, through both drivers: the whole of a debug session."""

import socket
import struct
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from virtual_rig import COUNTER, DTCM, FLASH, SRAM, TRANSPORTS, Program, Rig, backend, config, rig_on, virtual_board

from utvm.errors import BoardError, ProbeError
from utvm.probe.packets import Access, Stop


@pytest.fixture
def running(rig: Rig, program: Program) -> Rig:
    """A rig with the program in flash, halted at its first instruction."""
    if rig.gdb.read_memory(FLASH, len(program.image)) != program.image:
        rig.gdb.flash([(FLASH, program.image)])
    rig.gdb.monitor("reset halt")
    return rig


def test_what_is_programmed_reads_back_and_survives_a_reset(rig: Rig) -> None:
    images = [bytes(i * step & 0xFF for i in range(size)) for step, size in ((7, 5001), (13, 1000))]
    segments = [(FLASH, images[0]), (FLASH + 0x8004, images[1])]
    rig.gdb.flash(segments)
    for _ in range(2):
        for address, image in segments:
            assert rig.gdb.read_memory(address, len(image)) == image
        rig.gdb.monitor("reset halt")


def test_programming_leaves_other_sectors_alone(rig: Rig) -> None:
    rig.gdb.flash([(FLASH + 0x8000, b"keep me.")])
    rig.gdb.flash([(FLASH, b"other...")])
    assert rig.gdb.read_memory(FLASH + 0x8000, 8) == b"keep me."


@pytest.mark.parametrize("address", [FLASH + 0x100000 - 4, SRAM, 0x60000000])
def test_what_is_not_all_flash_is_refused_and_nothing_erased(rig: Rig, address: int) -> None:
    before = rig.gdb.read_memory(FLASH + 0xC0000, 16)
    with pytest.raises(BoardError, match="not all in flash"):
        rig.gdb.flash([(FLASH + 0xC0000, bytes(8)), (address, bytes(8))])
    assert rig.gdb.read_memory(FLASH + 0xC0000, 16) == before


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 9, 63, 65, 6143, 6145, 20000])
@pytest.mark.parametrize("misalignment", [0, 1, 2, 3])
def test_memory_of_any_size_and_alignment(rig: Rig, size: int, misalignment: int) -> None:
    data = bytes((i * 31 + size) & 0xFF for i in range(size))
    around = SRAM + misalignment
    rig.gdb.write_memory(around, b"\xaa" * (size + 2))
    rig.gdb.write_memory(around + 1, data)
    assert rig.gdb.read_memory(around, size + 2) == b"\xaa" + data + b"\xaa"


@given(data=st.binary(min_size=1, max_size=3000), offset=st.integers(0, 500))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_come_back(rig: Rig, data: bytes, offset: int) -> None:
    rig.gdb.write_memory(DTCM + offset, data)
    assert rig.gdb.read_memory(DTCM + offset, len(data)) == data


def test_openocds_own_command_reads_what_was_written(rig: Rig) -> None:
    rig.gdb.write_memory(SRAM, (0xDEADBEEF).to_bytes(4, "little"))
    assert "0x20010000: deadbeef" in rig.gdb.monitor(f"mdw {SRAM:#x}")


@pytest.mark.parametrize("size", [1, 4, 8, 64, 20000])
def test_bad_address_is_the_boards_error_and_the_session_goes_on(rig: Rig, size: int) -> None:
    with pytest.raises(BoardError, match="0x60000000"):
        rig.gdb.read_memory(0x60000000, size)
    with pytest.raises(BoardError, match="0x60000000"):
        rig.gdb.write_memory(0x60000000, bytes(size))
    rig.gdb.write_memory(SRAM, b"still here")
    assert rig.gdb.read_memory(SRAM, 10) == b"still here"


def test_core_and_floating_point_registers(rig: Rig) -> None:
    rig.gdb.monitor("reset halt")
    values = {f"r{n}": 0x01010101 * (n + 1) for n in range(13)} | {"lr": 0x08000001, "d7": 0x0123456789ABCDEF}
    for name, value in values.items():
        rig.gdb.write_register(name, value)
    registers = rig.gdb.read_registers()
    assert {name: registers[name] for name in values} == values
    assert {"sp", "pc", "xPSR", "msp", "psp", "primask", "control", "fpscr"} <= set(registers)


def test_reset_halt_stands_at_the_first_instruction(running: Rig, program: Program) -> None:
    running.gdb.write_memory(COUNTER, bytes(4))
    running.gdb.monitor("reset halt")
    registers = running.gdb.read_registers()
    assert (registers["pc"], registers["sp"]) == (program.labels["start"], DTCM + 0x1000)
    assert running.gdb.read_memory(COUNTER, 4) == bytes(4)


def test_reset_run_runs_and_halt_halts(running: Rig) -> None:
    running.gdb.monitor("reset run")
    first = running.gdb.read_memory(COUNTER, 4)
    while running.gdb.read_memory(COUNTER, 4) == first:
        pass  # memory is read while the core runs
    running.gdb.monitor("halt")
    at_rest = running.gdb.read_memory(COUNTER, 4)
    assert running.gdb.read_memory(COUNTER, 4) == at_rest


def test_reset_init_sets_the_clock_up(running: Rig, program: Program) -> None:
    running.gdb.monitor("reset init")
    assert running.gdb.read_register("pc") == program.labels["start"]
    rcc_cfgr = int.from_bytes(running.gdb.read_memory(0x40023808, 4), "little")
    assert rcc_cfgr & 0xF == 0b1010  # the stock script switched to the PLL, and the chip says it has


def test_steps_go_one_instruction_at_a_time(running: Rig, program: Program) -> None:
    at = program.labels["start"]
    for expected in (at + 2, at + 4, at + 6):
        assert running.gdb.step() == Stop(5)
        assert running.gdb.read_register("pc") == expected


def test_breakpoint_again_and_again(running: Rig, program: Program) -> None:
    running.gdb.insert_breakpoint(program.labels["store"])
    for expected in (1, 2, 3):
        running.gdb.resume()
        assert running.gdb.wait_for_stop(10.0) == Stop(5)
        assert running.gdb.read_register("pc") == program.labels["store"]
        assert running.gdb.read_register("r0") == expected
    running.gdb.remove_breakpoint(program.labels["store"])
    running.gdb.resume()
    assert running.gdb.wait_for_stop(0.2) is None
    running.gdb.interrupt()
    assert running.gdb.wait_for_stop(10.0) == Stop(2)


def test_the_core_has_eight_breakpoints(running: Rig) -> None:
    addresses = [FLASH + 0x200 + 2 * index for index in range(9)]
    for address in addresses[:8]:
        running.gdb.insert_breakpoint(address)
    with pytest.raises(BoardError, match="breakpoint at 0x08000210 cannot be set"):
        running.gdb.insert_breakpoint(addresses[8])
    for address in addresses[:8]:
        running.gdb.remove_breakpoint(address)


def watch_stop(rig: Rig, access: Access, address: int) -> Stop:
    """What OpenOCD tells of a watchpoint: through its high-level driver, not which one it was."""
    return Stop(5, access, address) if rig.transport == "dapdirect_swd" else Stop(5)


def test_write_watchpoint(running: Rig, program: Program) -> None:
    running.gdb.insert_breakpoint(program.labels["loop"])
    running.gdb.resume()
    assert running.gdb.wait_for_stop(10.0) == Stop(5)
    running.gdb.remove_breakpoint(program.labels["loop"])
    running.gdb.insert_watchpoint(COUNTER, 4, "write")
    running.gdb.resume()
    stop = running.gdb.wait_for_stop(10.0)
    running.gdb.remove_watchpoint(COUNTER, 4, "write")
    assert stop == watch_stop(running, "write", COUNTER)
    assert int.from_bytes(running.gdb.read_memory(COUNTER, 4), "little") == 1


@pytest.mark.parametrize("access", ["read", "access"])
def test_read_watchpoints(running: Rig, access: Access) -> None:
    running.gdb.insert_watchpoint(COUNTER + 4, 4, access)
    running.gdb.resume()
    stop = running.gdb.wait_for_stop(10.0)
    running.gdb.remove_watchpoint(COUNTER + 4, 4, access)
    assert stop == watch_stop(running, access, COUNTER + 4)
    assert running.gdb.read_register("r0") == 1


def test_the_reset_pin_stops_the_core_and_lets_it_start(running: Rig, program: Program) -> None:
    running.gdb.monitor("resume")
    running.gdb.monitor("adapter assert srst")
    running.gdb.monitor("adapter deassert srst")
    running.gdb.monitor("halt")
    assert running.gdb.read_register("sp") == DTCM + 0x1000
    assert program.labels["start"] < running.gdb.read_register("pc") < program.labels["trap"]


def test_the_console_talks_from_the_beginning(running: Rig) -> None:
    running.gdb.monitor("reset run")
    with socket.create_connection(("127.0.0.1", running.console_port), timeout=10.0) as console:
        said = b""
        while b"u\n" not in said:
            said += console.recv(100)
    running.gdb.monitor("halt")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_openocds_own_program_verify_reset(transport: str, program: Program, tmp_path: Path) -> None:
    with virtual_board(tmp_path) as board:
        words: list[str | Path] = ["openocd", "-f", config(transport, tmp_path)]
        words += ["-c", backend(transport, board)[0], "-c", f"program {program.elf} verify reset exit"]
        words += ["-c", "telnet_port disabled", "-c", "tcl_port disabled", "-c", "gdb_port disabled"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "** Verified OK **" in done.stderr
    assert "** Resetting Target **" in done.stderr


@pytest.mark.slow
def test_one_session_after_another_on_one_board(program: Program, tmp_path: Path) -> None:
    with virtual_board(tmp_path) as board:
        for transport in ("dapdirect_swd", "hla_swd", "dapdirect_swd"):
            with ExitStack() as stack:
                rig = rig_on(stack, transport, tmp_path, board=board)
                if transport == "hla_swd":
                    rig.gdb.flash([(FLASH, program.image)])
                held = rig.gdb.read_memory(FLASH, len(program.image))
        assert held == program.image


def test_a_core_that_locks_up_is_a_stop(rig: Rig) -> None:
    if rig.transport == "hla_swd":
        return  # OpenOCD's high-level driver takes a core in lock-up for one that runs
    # The first instruction is undefined, and the HardFault vector leads nowhere.
    vectors = struct.pack("<II", DTCM + 0x1000, FLASH + 0x101) + b"\xff" * 0xF8
    rig.gdb.flash([(FLASH, vectors + b"\xfe\xde")])
    rig.gdb.monitor("reset halt")
    rig.gdb.resume()
    assert rig.gdb.wait_for_stop(10.0) is not None
    assert rig.gdb.read_register("pc") == 0xFFFFFFFE  # ARM DDI 0403E, B1.5.15


def test_the_debug_components_are_found(running: Rig) -> None:
    if running.transport == "hla_swd":
        with pytest.raises(ProbeError, match="HLA target"):
            running.gdb.monitor("dap info")
        return
    said = running.gdb.monitor("dap info")
    assert "AP ID register 0x74770001" in said
    assert "Valid ROM table present" in said
    assert "Cortex-M7" in said


@pytest.mark.nightly
def test_many_sessions_leave_nothing_behind_in_the_board(program: Program, tmp_path: Path) -> None:
    with virtual_board(tmp_path) as board:
        process = psutil.Process(board.pid)
        before = (process.num_fds(), process.num_threads())
        for round_number in range(40):
            with ExitStack() as stack:
                rig = rig_on(stack, ("dapdirect_swd", "hla_swd")[round_number % 2], tmp_path, board=board)
                rig.gdb.flash([(FLASH, program.image)])
                rig.gdb.monitor("reset run")
                with socket.create_connection(("127.0.0.1", rig.console_port), timeout=10.0) as console:
                    assert console.recv(2)
        # A console's thread looks once a second whether its client is still there.
        deadline = time.monotonic() + 10
        while (process.num_fds(), process.num_threads()) != before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert (process.num_fds(), process.num_threads()) == before
