# SPDX-License-Identifier: Apache-2.0
"""Faults: a faulting program is stopped, and the report names the instruction.

The architecture defines the programs that fault, their exceptions and status bits.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from hil_tests.architectures import Facts, FaultCase, JumpCase, parameters
from hil_tests.programs import endless_recursion, handwritten, line_of
from utvm.boards.parts import MemoryRegion
from utvm.compiler import Library
from utvm.drivers import Connection
from utvm.firmware import Firmware
from utvm.session import DeviceFault, HostDriven

pytestmark = pytest.mark.needs("debug port")

_GOOD = handwritten("good", "  y[0] = x[0] + 1;\n  return 0;")
_JUMP = handwritten("jump", "  return ((int32_t (*)(void))(uintptr_t)(uint32_t)x[0])();")
_OVERFLOW = endless_recursion("overflow")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test over the faults and jumps of the board's architecture."""
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", parameters(metafunc.config, "faults"))
    if "jump" in metafunc.fixturenames:
        metafunc.parametrize("jump", parameters(metafunc.config, "jumps"))


def _input(value: int) -> npt.NDArray[np.int32]:
    return np.array([value, 0, 0, 0], np.uint32).view(np.int32)


def _run_to_fault(session: HostDriven, name: str, x: int, needs: str) -> DeviceFault:
    """Run a program and return its fault; without a fault, fail with a hint for the board's ``lacks``."""
    try:
        session.run(name, [_input(x)])
    except DeviceFault as fault:
        return fault
    advice = f"; a board where it does says so: lacks: [{needs}] (docs/porting.md, step 3)" if needs else ""
    alternative = ", or names another hole" if needs == "bus errors" else ""
    pytest.fail(f"{name} with {x:#x} ran to its end, and faulted nowhere{advice}{alternative}", pytrace=False)


@pytest.fixture(scope="module")
def image(firmware: Callable[[Sequence[Library]], Firmware], facts: Facts) -> Firmware:
    """All faulting programs, and a correct one."""
    return firmware([*(case.library for case in facts.faults), _GOOD, _JUMP, _OVERFLOW])


@pytest.fixture
def faulty(board: Connection, image: Firmware, session: Callable[[Firmware], HostDriven]) -> HostDriven:
    """A session with the faulting programs, just started."""
    return session(image)


def test_fault_is_reported_with_cause_and_location(
    board: Connection, faulty: HostDriven, case: FaultCase, image: Firmware
) -> None:
    name = case.library.name
    x = board.board.hole if case.x is None else case.x
    fault = _run_to_fault(faulty, name, x, case.needs)
    assert fault.record.meaning.name == case.exception
    assert not case.flag or any(flag.startswith(case.flag) for flag in fault.record.meaning.flags)
    assert fault.record.meaning.address == case.address(image.input_address(case.library, 0), x)
    assert f"{name}_run" in fault.source_line
    assert fault.source_line.endswith(f"{name}.c:{line_of(case.library, '/* here */')}")
    assert f"pc {fault.record.pc:#010x}" in fault.message
    assert fault.record.meaning.status in fault.message


def test_jump_to_data_is_reported(faulty: HostDriven, jump: JumpCase, code: MemoryRegion) -> None:
    target = jump.target(code)
    record = _run_to_fault(faulty, "jump", target + jump.mark, jump.needs).record
    assert record.meaning.name == jump.exception
    assert not jump.flag or any(flag.startswith(jump.flag) for flag in record.meaning.flags)
    assert record.pc == target


def test_stack_overflow_is_reported(faulty: HostDriven, image: Firmware, facts: Facts) -> None:
    with pytest.raises(DeviceFault) as caught:
        faulty.run("overflow", [_input(0)])
    meaning = caught.value.record.meaning
    assert any(name.startswith(facts.overflow) for name in (meaning.name, *meaning.flags))
    stack = next(section for section in image.sections if section.name == ".stack")
    assert caught.value.record.sp < stack.address + 256


def test_board_works_after_a_fault_and_a_reset(faulty: HostDriven) -> None:
    with pytest.raises(DeviceFault):
        faulty.run("undefined", [_input(0)])
    faulty.reset()
    (output,) = faulty.run("good", [_input(41)]).outputs
    assert output[0] == 42
