"""Operators on the board, against numpy: float within rounding, integers exactly."""

from collections.abc import Callable, Sequence

import pytest

from hil_tests.operator_cases import OPERATOR_CASES, OperatorCase
from utvm import compiler
from utvm.compiler import Library
from utvm.errors import UtvmError
from utvm.firmware import Firmware
from utvm.session import HostDriven


def _name(case: OperatorCase) -> str:
    return f"op_{case.name}"


@pytest.fixture(scope="module")
def compiled() -> dict[str, Library | UtvmError]:
    """Every case's library; one that does not compile fails its own test alone."""
    results: dict[str, Library | UtvmError] = {}
    for case in OPERATOR_CASES:
        try:
            results[case.name] = compiler.compile_model(case.model(), name=_name(case))
        except UtvmError as error:
            results[case.name] = error
    return results


@pytest.fixture(scope="module")
def image(firmware: Callable[[Sequence[Library]], Firmware], compiled: dict[str, Library | UtvmError]) -> Firmware:
    """All operators in one image."""
    return firmware([result for result in compiled.values() if isinstance(result, Library)])


@pytest.mark.parametrize("case", OPERATOR_CASES, ids=lambda case: case.name)
def test_operator_against_numpy(
    case: OperatorCase,
    image: Firmware,
    compiled: dict[str, Library | UtvmError],
    session: Callable[[Firmware], HostDriven],
) -> None:
    result = compiled[case.name]
    if isinstance(result, UtvmError):
        raise result
    case.check(session(image).run(_name(case), case.inputs).outputs)
