# SPDX-License-Identifier: Apache-2.0
"""Images in RAM: the debug port loads and starts them, at automatically chosen addresses.

Flash does not change, and the flashed firmware starts again after the next reset.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from hil_tests.many_models import ManyModels
from hil_tests.operator_cases import OPERATOR_CASES, OperatorCase
from hil_tests.programs import endless_recursion, handwritten, line_of
from models.digits import quantize
from models.digits.data import held_out
from models.tflite_reference import tflite_micro
from utvm.boards import Board
from utvm.boards.parts import MemoryRegion
from utvm.compiler import Library, load
from utvm.drivers import Connection
from utvm.errors import DoesNotFitError
from utvm.firmware import Firmware, build
from utvm.hil.plugin import board_of
from utvm.session import DeviceFault, HostDriven

pytestmark = pytest.mark.needs("debug port")

_IMAGES = 50
# A few of every kind; the suite of operators has all of them.
_CASES = OPERATOR_CASES[::5]
_FAULTY = handwritten(
    "faulty", "  if (x[0] == 7) {\n    __builtin_trap(); /* here */\n  }\n  y[0] = x[0] + 1;\n  return 0;"
)
_OVERFLOW = endless_recursion("overflow")
_ORDINARY = np.array([41, 0, 0, 0], np.int32)
_TRAP = np.array([7, 0, 0, 0], np.int32)


@pytest.fixture(scope="module")
def chip(request: pytest.FixtureRequest) -> Board:
    """The board's description."""
    return board_of(request.config)


@pytest.fixture(scope="module")
def in_ram(chip: Board) -> Callable[[Sequence[Library]], Firmware]:
    """Link libraries into an image for RAM."""
    return lambda libraries: build(chip, libraries, in_ram=True)


@pytest.fixture(scope="module")
def digits(compile_for_board: Callable[..., Library]) -> Library:
    return compile_for_board(load(quantize.MODEL))


@pytest.fixture(scope="module")
def pictures() -> list[Any]:
    return [picture[np.newaxis] for picture in quantize.quantized_images(held_out()[0])[:_IMAGES]]


@pytest.fixture(scope="module")
def operators(compile_for_board: Callable[..., Library], in_ram: Callable[[Sequence[Library]], Firmware]) -> ManyModels:
    """The operators in one image, loaded once."""

    def compiler_of(case: OperatorCase) -> Callable[[], Library]:
        return lambda: compile_for_board(case.model(), name=f"op_{case.name}")

    return ManyModels({case.name: compiler_of(case) for case in _CASES}, in_ram)


@pytest.fixture(scope="module")
def faulty(in_ram: Callable[[Sequence[Library]], Firmware]) -> Firmware:
    return in_ram([_FAULTY, _OVERFLOW])


def test_sections_are_in_ram_and_do_not_overlap(
    chip: Board, digits: Library, in_ram: Callable[[Sequence[Library]], Firmware]
) -> None:
    image = in_ram([digits])
    ram = [region for region in chip.memory if region.kind == "ram"]
    end = 0
    for section in image.sections:
        assert section.address >= end, f"{section.name} overlaps what lies below it"
        end = section.address + section.size
        inside = sum(max(0, min(end, region.end) - max(section.address, region.address)) for region in ram)
        assert inside == section.size, f"{section.name} leaves RAM"
    assert image.flash_bytes == 0
    stack = next(section for section in image.sections if section.name == ".stack")
    assert stack.address == chip.region(chip.layout.stack).address


def test_model_equals_the_reference_kernels(
    digits: Library,
    pictures: list[Any],
    in_ram: Callable[[Sequence[Library]], Firmware],
    session: Callable[[Firmware], HostDriven],
) -> None:
    golden = tflite_micro(quantize.MODEL.read_bytes(), [[picture] for picture in pictures])
    running = session(in_ram([digits]))
    for number, (picture, (expected,)) in enumerate(zip(pictures, golden, strict=True)):
        (output,) = running.run(digits.name, [picture]).outputs
        assert output.tobytes() == expected.tobytes(), f"image {number}"


def test_instructions_are_as_many_as_from_flash(
    board: Connection,
    digits: Library,
    pictures: list[Any],
    firmware: Callable[[Sequence[Library]], Firmware],
    in_ram: Callable[[Sequence[Library]], Firmware],
    session: Callable[[Firmware], HostDriven],
) -> None:
    if board.count_unit != "instructions":
        pytest.skip("a chip counts cycles, which depend on the memory that code and weights are in")
    counts = {session(image([digits])).run(digits.name, pictures[:1]).count for image in (firmware, in_ram)}
    assert len(counts) == 1


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_operators_loaded_together_equal_numpy(
    case: OperatorCase, operators: ManyModels, session: Callable[[Firmware], HostDriven]
) -> None:
    library = operators.library(case.name)
    case.check(session(operators.image).run(library.name, case.inputs).outputs)


def test_fault_has_its_line_and_callers(faulty: Firmware, session: Callable[[Firmware], HostDriven]) -> None:
    running = session(faulty)
    with pytest.raises(DeviceFault) as caught:
        running.run("faulty", [_TRAP])
    assert caught.value.source_line.endswith(f"faulty.c:{line_of(_FAULTY, '/* here */')}")
    assert any("utvm_main" in line for line in caught.value.backtrace)
    assert caught.value.running.startswith("model faulty")


def test_stack_overflow_is_a_fault(faulty: Firmware, session: Callable[[Firmware], HostDriven]) -> None:
    with pytest.raises(DeviceFault):
        session(faulty).run("overflow", [_ORDINARY])


def test_reset_restores_overwritten_memory(
    board: Connection, faulty: Firmware, session: Callable[[Firmware], HostDriven]
) -> None:
    running = session(faulty)
    for address, data in faulty.segments:
        board.write_memory(address, bytes(len(data)))
    assert board.first_difference(faulty) is not None
    running.reset()
    # Some cores have no hardware breakpoints for RAM; a software breakpoint would be a difference.
    board.clear_breakpoints()
    assert board.first_difference(faulty) is None
    running.reset()
    (output,) = running.run("faulty", [_ORDINARY]).outputs
    assert output[0] == 42


@pytest.mark.needs("flash")
def test_flash_does_not_change_and_starts_after_a_reset(
    board: Connection,
    doubler: Firmware,
    faulty: Firmware,
    code: MemoryRegion,
    session: Callable[[Firmware], HostDriven],
) -> None:
    session(doubler)
    before = board.read_memory(code.address, code.size)
    running = session(faulty)
    assert running.run("faulty", [_ORDINARY]).outputs[0][0] == 42
    with pytest.raises(DeviceFault):
        running.run("faulty", [_TRAP])
    running.reset()
    assert board.read_memory(code.address, code.size) == before
    board.clear_breakpoints()
    board.reset(halt=True)
    board.insert_breakpoint(doubler.symbols["utvm_host_turn"])
    assert board.run_until_stop(30.0) == doubler.symbols["utvm_host_turn"]


def test_too_large_model_is_refused_with_its_sizes(
    chip: Board, in_ram: Callable[[Sequence[Library]], Firmware]
) -> None:
    ram = sum(region.size for region in chip.memory if region.kind == "ram")
    with pytest.raises(DoesNotFitError) as caught:
        in_ram([handwritten("hungry", "  return 0;", arena_bytes=ram)])
    match = re.fullmatch(
        r"section (\S+) does not fit into RAM: it needs (\d+) bytes and the most that is left in one piece is "
        rf"(\d+) \(.*\); {chip.name} has {ram} bytes of RAM, the whole image needs (\d+)",
        caught.value.message,
    )
    assert match
    section, need, largest, total = match[1], *map(int, match.groups()[1:])
    assert section == ".arena"
    assert need == ram + 32  # with one input and one output of 16 bytes
    assert largest < need < total
    assert caught.value.hint


def test_board_is_flashed_as_before_afterwards(
    board: Connection, doubler: Firmware, session: Callable[[Firmware], HostDriven]
) -> None:
    (output,) = session(doubler).run("doubler", [_ORDINARY]).outputs
    assert output.tolist() == [82, 0, 0, 0]
    assert board.first_difference(doubler) is None
