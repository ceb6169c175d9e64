# SPDX-License-Identifier: Apache-2.0
"""The debug port: halt, step, breakpoints, watchpoints, registers and resets."""

import struct
import time
from collections.abc import Callable, Sequence

import pytest

from hil_tests.architectures import Facts
from hil_tests.programs import handwritten
from utvm.boards.parts import MemoryRegion
from utvm.compiler import Library
from utvm.drivers import Connection
from utvm.errors import BoardError
from utvm.firmware import Firmware
from utvm.probe.gdb import Access
from utvm.session import HostDriven

pytestmark = pytest.mark.needs("debug port")

_TIMEOUT = 10.0
_ROUNDS = 3

_STEPPER = """  (void)0;
  for (int round = 0; round < 3; round++) {{
    __asm__ volatile(
        ".global stepper_mark\\n"
        "stepper_mark:\\n"
        {steps} ::: {changed});
    stepper_value++;
    y[0] = stepper_other;
  }}
  return 0;"""
_STEPPER_DATA = "volatile uint32_t stepper_value;\nvolatile int32_t stepper_other = 17;\n"


@pytest.fixture(scope="module")
def stepper(firmware: Callable[[Sequence[Library]], Firmware], facts: Facts) -> Firmware:
    """A program with known instructions at ``stepper_mark``, run three times in a loop."""
    steps = "\n        ".join(f'"{line}\\n"' for line in facts.steps_code)
    body = _STEPPER.format(steps=steps, changed=facts.steps_changed)
    return firmware([handwritten("stepper", body, _STEPPER_DATA)])


@pytest.fixture
def ready(board: Connection, stepper: Firmware, session: Callable[[Firmware], HostDriven]) -> Connection:
    """The board, which runs the program when it is resumed."""
    session(stepper)
    board.write_memory(stepper.symbols["utvm_request"], struct.pack("<I", 0))
    return board


def test_halt_stops_a_running_core(board: Connection, doubler: Firmware, code: MemoryRegion) -> None:
    """Without a breakpoint at ``utvm_host_turn``, the firmware runs its program repeatedly."""
    board.program(doubler)
    counts = [0]
    deadline = time.monotonic() + 6 * _TIMEOUT
    while len(counts) < 3:
        assert time.monotonic() < deadline, "the program does not go on"
        board.gdb.resume()
        assert board.gdb.wait_for_stop(0.2) is None
        board.gdb.interrupt()
        assert board.gdb.wait_for_stop(_TIMEOUT) is not None
        assert code.address <= board.gdb.read_register("pc") < code.end
        reply = board.read_memory(doubler.symbols["utvm_reply"], 4)
        assert board.read_memory(doubler.symbols["utvm_reply"], 4) == reply
        (count,) = struct.unpack("<I", reply)
        assert count >= counts[-1]
        # A virtual board on a busy computer may be slow.
        if count > counts[-1]:
            counts.append(count)


def test_step_executes_one_instruction(ready: Connection, stepper: Firmware, facts: Facts) -> None:
    mark = stepper.symbols["stepper_mark"]
    ready.insert_breakpoint(mark)
    assert ready.run_until_stop(_TIMEOUT) == mark
    ready.clear_breakpoints()
    states = []
    for _ in facts.steps:
        ready.gdb.step()
        states.append((ready.gdb.read_register("pc") - mark, ready.gdb.read_register(facts.steps_register)))
    assert tuple(states) == facts.steps


def test_breakpoint_stops_before_its_instruction(ready: Connection, stepper: Firmware) -> None:
    mark = stepper.symbols["stepper_mark"]
    ready.insert_breakpoint(mark)
    for rounds in range(_ROUNDS):
        assert ready.run_until_stop(_TIMEOUT) == mark
        assert ready.read_memory(stepper.symbols["stepper_value"], 4) == struct.pack("<I", rounds)
    assert ready.run_until_stop(_TIMEOUT) == stepper.symbols["utvm_host_turn"]


def test_removed_breakpoint_does_not_stop(ready: Connection, stepper: Firmware) -> None:
    mark = stepper.symbols["stepper_mark"]
    ready.gdb.insert_breakpoint(mark)
    assert ready.run_until_stop(_TIMEOUT) == mark
    ready.gdb.remove_breakpoint(mark)
    assert ready.run_until_stop(_TIMEOUT) == stepper.symbols["utvm_host_turn"]


@pytest.mark.needs("watchpoints")
@pytest.mark.parametrize(
    ("variable", "access", "stops"),
    [
        ("stepper_value", "write", _ROUNDS),
        ("stepper_value", "access", 2 * _ROUNDS),
        ("stepper_other", "read", _ROUNDS),
        ("stepper_other", "write", 0),
    ],
)
def test_watchpoint_stops_at_its_accesses(
    ready: Connection, stepper: Firmware, variable: str, access: Access, stops: int
) -> None:
    address = stepper.symbols[variable]
    ready.gdb.insert_watchpoint(address, 4, access)
    try:
        for _ in range(stops):
            ready.gdb.resume()
            stop = ready.gdb.wait_for_stop(_TIMEOUT)
            assert stop is not None
            assert stop.address == address
            assert "stepper_run" in stepper.source_line(ready.gdb.read_register("pc"))
        assert ready.run_until_stop(_TIMEOUT) == stepper.symbols["utvm_host_turn"]
    finally:
        ready.gdb.remove_watchpoint(address, 4, access)


def _is_readable(board: Connection, register: str) -> bool:
    try:
        board.gdb.read_register(register)
    except BoardError:
        return False
    return True


def test_register_write_changes_only_that_register(board: Connection, facts: Facts) -> None:
    # QEMU also lists optional registers that this core does not have.
    readable = [name for name in board.gdb.register_names if _is_readable(board, name)]
    assert set(facts.registers) <= set(readable)
    for name in facts.registers:
        unchanged = {key: board.gdb.read_register(key) for key in readable if key != name}
        for value in (0xDEADBEEF, 0x00000000, 0xFFFFFFFF):
            board.gdb.write_register(name, value)
            after = {key: board.gdb.read_register(key) for key in readable}
            assert after.pop(name) == value
            assert after == unchanged


def test_reset_halt_stops_before_the_first_instruction(board: Connection, doubler: Firmware, facts: Facts) -> None:
    board.program(doubler)
    expected = facts.after_reset(board, doubler)
    addresses = set()
    for _ in range(2):
        board.gdb.write_register(facts.registers[4], 0x12345678)
        board.reset(halt=True)
        assert {name: board.gdb.read_register(name) for name in expected} == expected
        addresses.add(board.gdb.read_register("pc"))
    assert len(addresses) == 1


@pytest.mark.needs("console")
def test_reset_run_starts_the_firmware(board: Connection, doubler: Firmware) -> None:
    board.program(doubler)
    board.gdb.insert_breakpoint(doubler.symbols["utvm_main"])
    try:
        assert board.run_until_stop(_TIMEOUT) == doubler.symbols["utvm_main"]
    finally:
        board.gdb.remove_breakpoint(doubler.symbols["utvm_main"])
    if board.console is None:
        pytest.skip("the board's serial line was not found on this machine")
    board.console.clear()
    board.reset(halt=False)
    assert b"is up" in board.console.read_until(b"is up\r\n", _TIMEOUT)
