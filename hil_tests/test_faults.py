"""Faults: a program that does what it must not is stopped, and the report names the instruction.

Which fault it is and which status bits it sets is the architecture's: see ``architectures.py``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from hil_tests.architectures import FAULTS, STACK_OVERFLOW
from hil_tests.programs import endless_recursion, handwritten, line_of
from utvm.attach import Bench
from utvm.boards import MemoryRegion
from utvm.compiler import Library
from utvm.firmware import Firmware
from utvm.session import DeviceFault, HostDriven

pytestmark = pytest.mark.needs("debug port")

# No memory there on any Armv7-M device that leaves the vendor's part of the map alone, nor on a Zynq.
_NOWHERE = 0xF0000000
# Where nothing may be executed: an Armv7-M's first peripherals (ARM DDI 0403E, B3.1), a Zynq's programmable logic.
_PERIPHERALS = 0x40000000


@dataclass(frozen=True)
class FaultCase:
    """A program that faults at the line that says ``here`` when given ``x``, and what a CPU must trap for it."""

    library: Library
    x: int
    trap: str = ""


_CASES = (
    FaultCase(
        handwritten("bad_read", "  y[0] = *(volatile int32_t *)x[0]; /* here */\n  return 0;"),
        _NOWHERE,
    ),
    FaultCase(handwritten("undefined", '  __asm__ volatile("udf #0"); /* here */\n  return 0;'), 0),
    FaultCase(
        handwritten("divide_by_zero", "  y[0] = 7 / x[0]; /* here */\n  return 0;"), 0, "trap: division by zero"
    ),
    FaultCase(
        handwritten(
            "unaligned",
            '  __asm__ volatile("ldrd r2, r3, [%0]" : : "r"((char *)x + 1) : "r2", "r3"); /* here */\n  return 0;',
        ),
        0,
    ),
)
_GOOD = handwritten("good", "  y[0] = x[0] + 1;\n  return 0;")
_JUMP = handwritten("jump", "  return ((int32_t (*)(void))x[0])();")
_OVERFLOW = endless_recursion("overflow")


def _input(value: int) -> npt.NDArray[np.int32]:
    return np.array([value, 0, 0, 0], np.uint32).view(np.int32)


@pytest.fixture(scope="module")
def image(firmware: Callable[[Sequence[Library]], Firmware]) -> Firmware:
    """All the faulty programs, and a good one."""
    return firmware([*(case.library for case in _CASES), _GOOD, _JUMP, _OVERFLOW])


@pytest.fixture
def faulty(board: Bench, image: Firmware, session: Callable[[Firmware], HostDriven]) -> HostDriven:
    """A session with the faulty programs, at the start."""
    return session(image)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.needs(case.trap)] if case.trap else [], id=case.library.name)
        for case in _CASES
    ],
)
def test_a_fault_is_reported_with_its_cause_and_its_place(
    faulty: HostDriven, image: Firmware, case: FaultCase
) -> None:
    name = case.library.name
    expected = FAULTS[image.board.architecture][name]
    with pytest.raises(DeviceFault) as caught:
        faulty.run(name, [_input(case.x)])
    fault = caught.value
    assert fault.record.meaning.name == expected.exception
    assert any(flag.startswith(expected.flag) for flag in fault.record.meaning.flags or [""])
    places = {"": None, "given": case.x, "input": image.input_address(case.library, 0) + 1}
    assert fault.record.meaning.address == places[expected.address]
    assert f"{name}_run" in fault.source_line
    assert fault.source_line.endswith(f"{name}.c:{line_of(case.library, '/* here */')}")
    assert f"pc {fault.record.pc:#010x}" in fault.message
    assert fault.record.meaning.status in fault.message


@pytest.mark.needs("trap: code that is not Thumb")
def test_code_that_is_not_thumb(faulty: HostDriven, code: MemoryRegion) -> None:
    with pytest.raises(DeviceFault) as caught:
        faulty.run("jump", [_input(code.address)])
    assert caught.value.record.meaning.name == "UsageFault"
    assert any(flag.startswith("INVSTATE") for flag in caught.value.record.meaning.flags)
    assert caught.value.record.pc == code.address


def test_code_where_nothing_may_be_executed(faulty: HostDriven, image: Firmware) -> None:
    expected = FAULTS[image.board.architecture]["not_executable"]
    with pytest.raises(DeviceFault) as caught:
        faulty.run("jump", [_input(_PERIPHERALS | 1)])
    assert caught.value.record.meaning.name == expected.exception
    assert any(flag.startswith(expected.flag) for flag in caught.value.record.meaning.flags)
    assert caught.value.record.pc == _PERIPHERALS


def test_a_stack_that_overflows_is_noticed(faulty: HostDriven, image: Firmware) -> None:
    with pytest.raises(DeviceFault) as caught:
        faulty.run("overflow", [_input(0)])
    flags = {flag.split(":")[0] for flag in caught.value.record.meaning.flags}
    assert flags & STACK_OVERFLOW[image.board.architecture]
    stack = next(section for section in image.sections if section.name == ".stack")
    assert caught.value.record.sp < stack.address + 256


def test_after_a_fault_and_a_reset_the_board_works_again(faulty: HostDriven) -> None:
    with pytest.raises(DeviceFault):
        faulty.run("undefined", [_input(0)])
    faulty.reset()
    (output,) = faulty.run("good", [_input(41)]).outputs
    assert output[0] == 42
