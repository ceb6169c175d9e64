# SPDX-License-Identifier: Apache-2.0
"""A real, unmodified OpenOCD on the virtual board, with both drivers: a complete debug session."""

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
def halted_rig(rig: Rig, program: Program) -> Rig:
    """A rig with the program in flash, halted at its first instruction."""
    if rig.gdb.read_memory(FLASH, len(program.image)) != program.image:
        rig.gdb.flash([(FLASH, program.image)])
    rig.gdb.monitor("reset halt")
    return rig


@pytest.mark.slow
def test_flash_reads_back_and_survives_a_reset(rig: Rig) -> None:
    images = [bytes(i * step & 0xFF for i in range(size)) for step, size in ((7, 5001), (13, 1000))]
    segments = [(FLASH, images[0]), (FLASH + 0x8004, images[1])]
    rig.gdb.flash(segments)
    for _ in range(2):
        for address, image in segments:
            assert rig.gdb.read_memory(address, len(image)) == image
        rig.gdb.monitor("reset halt")


@pytest.mark.slow
def test_flashing_leaves_other_sectors_alone(rig: Rig) -> None:
    rig.gdb.flash([(FLASH + 0x8000, b"keep me.")])
    rig.gdb.flash([(FLASH, b"other...")])
    assert rig.gdb.read_memory(FLASH + 0x8000, 8) == b"keep me."


@pytest.mark.parametrize("address", [FLASH + 0x100000 - 4, SRAM, 0x60000000])
def test_range_outside_flash_is_refused_before_erasing(rig: Rig, address: int) -> None:
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


def test_openocds_own_command_reads_written_memory(rig: Rig) -> None:
    rig.gdb.write_memory(SRAM, (0xDEADBEEF).to_bytes(4, "little"))
    assert "0x20010000: deadbeef" in rig.gdb.monitor(f"mdw {SRAM:#x}")


@pytest.mark.parametrize("size", [1, 4, 8, 64, 20000])
def test_bad_address_is_a_board_error(rig: Rig, size: int) -> None:
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
    assert {name: rig.gdb.read_register(name) for name in values} == values
    assert {"sp", "pc", "xPSR", "msp", "psp", "primask", "control", "fpscr"} <= set(rig.gdb.register_names)


def test_reset_halt_stops_at_the_first_instruction(halted_rig: Rig, program: Program) -> None:
    halted_rig.gdb.write_memory(COUNTER, bytes(4))
    halted_rig.gdb.monitor("reset halt")
    registers = [halted_rig.gdb.read_register(name) for name in ("pc", "sp")]
    assert registers == [program.labels["start"], DTCM + 0x1000]
    assert halted_rig.gdb.read_memory(COUNTER, 4) == bytes(4)


def test_reset_run_runs_and_halt_halts(halted_rig: Rig) -> None:
    halted_rig.gdb.monitor("reset run")
    first = halted_rig.gdb.read_memory(COUNTER, 4)
    while halted_rig.gdb.read_memory(COUNTER, 4) == first:
        pass  # memory is read while the core runs
    halted_rig.gdb.monitor("halt")
    at_rest = halted_rig.gdb.read_memory(COUNTER, 4)
    assert halted_rig.gdb.read_memory(COUNTER, 4) == at_rest


def test_reset_init_sets_the_clock_up(halted_rig: Rig, program: Program) -> None:
    halted_rig.gdb.monitor("reset init")
    assert halted_rig.gdb.read_register("pc") == program.labels["start"]
    rcc_cfgr = int.from_bytes(halted_rig.gdb.read_memory(0x40023808, 4), "little")
    assert rcc_cfgr & 0xF == 0b1010  # the stock script has switched to the PLL


def test_step_executes_one_instruction(halted_rig: Rig, program: Program) -> None:
    at = program.labels["start"]
    for expected in (at + 2, at + 4, at + 6):
        assert halted_rig.gdb.step() == Stop(5)
        assert halted_rig.gdb.read_register("pc") == expected


def test_breakpoint_is_hit_repeatedly(halted_rig: Rig, program: Program) -> None:
    halted_rig.gdb.insert_breakpoint(program.labels["store"])
    for expected in (1, 2, 3):
        halted_rig.gdb.resume()
        assert halted_rig.gdb.wait_for_stop(10.0) == Stop(5)
        assert halted_rig.gdb.read_register("pc") == program.labels["store"]
        assert halted_rig.gdb.read_register("r0") == expected
    halted_rig.gdb.remove_breakpoint(program.labels["store"])
    halted_rig.gdb.resume()
    assert halted_rig.gdb.wait_for_stop(0.2) is None
    halted_rig.gdb.interrupt()
    assert halted_rig.gdb.wait_for_stop(10.0) == Stop(2)


def test_core_has_eight_breakpoints(halted_rig: Rig) -> None:
    addresses = [FLASH + 0x200 + 2 * index for index in range(9)]
    for address in addresses[:8]:
        halted_rig.gdb.insert_breakpoint(address)
    with pytest.raises(BoardError, match="breakpoint at 0x08000210 cannot be set"):
        halted_rig.gdb.insert_breakpoint(addresses[8])
    for address in addresses[:8]:
        halted_rig.gdb.remove_breakpoint(address)


def watch_stop(rig: Rig, access: Access, address: int) -> Stop:
    """The stop that OpenOCD reports: its high-level driver does not name the watchpoint."""
    return Stop(5, access, address) if rig.transport == "dapdirect_swd" else Stop(5)


def test_write_watchpoint(halted_rig: Rig, program: Program) -> None:
    halted_rig.gdb.insert_breakpoint(program.labels["loop"])
    halted_rig.gdb.resume()
    assert halted_rig.gdb.wait_for_stop(10.0) == Stop(5)
    halted_rig.gdb.remove_breakpoint(program.labels["loop"])
    halted_rig.gdb.insert_watchpoint(COUNTER, 4, "write")
    halted_rig.gdb.resume()
    stop = halted_rig.gdb.wait_for_stop(10.0)
    halted_rig.gdb.remove_watchpoint(COUNTER, 4, "write")
    assert stop == watch_stop(halted_rig, "write", COUNTER)
    assert int.from_bytes(halted_rig.gdb.read_memory(COUNTER, 4), "little") == 1


@pytest.mark.parametrize("access", ["read", "access"])
def test_read_watchpoints(halted_rig: Rig, access: Access) -> None:
    halted_rig.gdb.insert_watchpoint(COUNTER + 4, 4, access)
    halted_rig.gdb.resume()
    stop = halted_rig.gdb.wait_for_stop(10.0)
    halted_rig.gdb.remove_watchpoint(COUNTER + 4, 4, access)
    assert stop == watch_stop(halted_rig, access, COUNTER + 4)
    assert halted_rig.gdb.read_register("r0") == 1


def test_reset_pin_stops_and_restarts_the_core(halted_rig: Rig, program: Program) -> None:
    halted_rig.gdb.monitor("resume")
    halted_rig.gdb.monitor("adapter assert srst")
    halted_rig.gdb.monitor("adapter deassert srst")
    halted_rig.gdb.monitor("halt")
    assert halted_rig.gdb.read_register("sp") == DTCM + 0x1000
    assert program.labels["start"] < halted_rig.gdb.read_register("pc") < program.labels["trap"]


def test_console_prints_from_the_start(halted_rig: Rig) -> None:
    halted_rig.gdb.monitor("reset run")
    with socket.create_connection(("127.0.0.1", halted_rig.console_port), timeout=10.0) as console:
        output = b""
        while b"u\n" not in output:
            output += console.recv(100)
    halted_rig.gdb.monitor("halt")


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_openocds_own_program_verify_reset(transport: str, program: Program, tmp_path: Path) -> None:
    with virtual_board(tmp_path) as board:
        command: list[str | Path] = ["openocd", "-f", config(transport, tmp_path)]
        command += ["-c", backend(transport, board)[0], "-c", f"program {program.elf} verify reset exit"]
        command += ["-c", "telnet_port disabled", "-c", "tcl_port disabled", "-c", "gdb_port disabled"]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode == 0, completed.stderr
    assert "** Verified OK **" in completed.stderr
    assert "** Resetting Target **" in completed.stderr


@pytest.mark.slow
def test_consecutive_sessions_on_one_board(program: Program, tmp_path: Path) -> None:
    with virtual_board(tmp_path) as board:
        for transport in ("dapdirect_swd", "hla_swd", "dapdirect_swd"):
            with ExitStack() as stack:
                rig = rig_on(stack, transport, tmp_path, board=board)
                if transport == "hla_swd":
                    rig.gdb.flash([(FLASH, program.image)])
                content = rig.gdb.read_memory(FLASH, len(program.image))
        assert content == program.image


def test_locked_up_core_is_a_stop(rig: Rig) -> None:
    if rig.transport == "hla_swd":
        return  # OpenOCD's high-level driver reports a locked-up core as running
    # The first instruction is undefined, and the HardFault vector leads nowhere.
    vectors = struct.pack("<II", DTCM + 0x1000, FLASH + 0x101) + b"\xff" * 0xF8
    rig.gdb.flash([(FLASH, vectors + b"\xfe\xde")])
    rig.gdb.monitor("reset halt")
    rig.gdb.resume()
    assert rig.gdb.wait_for_stop(10.0) is not None
    assert rig.gdb.read_register("pc") == 0xFFFFFFFE  # ARM DDI 0403E, B1.5.15


def test_debug_components_are_found(halted_rig: Rig) -> None:
    if halted_rig.transport == "hla_swd":
        with pytest.raises(ProbeError, match="HLA target"):
            halted_rig.gdb.monitor("dap info")
        return
    output = halted_rig.gdb.monitor("dap info")
    assert "AP ID register 0x74770001" in output
    assert "Valid ROM table present" in output
    assert "Cortex-M7" in output


@pytest.mark.nightly
def test_many_sessions_leak_no_handles_or_threads(program: Program, tmp_path: Path) -> None:
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
        # A console's thread checks once a second whether its client is connected.
        deadline = time.monotonic() + 10
        while (process.num_fds(), process.num_threads()) != before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert (process.num_fds(), process.num_threads()) == before
