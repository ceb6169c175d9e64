# SPDX-License-Identifier: Apache-2.0
"""All operator cases, compiled with gcc on this computer, against numpy and against TVM."""

from pathlib import Path

import numpy as np
import pytest
from host_library import FLAGS, HostLibrary, write_sources

from hil_tests.operator_cases import OPERATOR_CASES, OperatorCase
from utvm.base.process import run_tool
from utvm.compiler import compile_model, reference

# TVM's LLVM backend uses its own rational function here; the library calls the C library.
APPROXIMATED_BY_TVM = ("tanh",)

all_cases = pytest.mark.parametrize("case", OPERATOR_CASES, ids=lambda case: case.name)


@all_cases
def test_operator_equals_numpy(case: OperatorCase, tmp_path: Path) -> None:
    library = HostLibrary(compile_model(case.model()), tmp_path)
    case.check(library(*case.inputs))


@pytest.mark.slow
@all_cases
def test_operator_equals_tvm_without_undefined_behaviour(
    case: OperatorCase, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = case.model()
    sanitized = HostLibrary(compile_model(model), tmp_path, ["-O2", "-fsanitize=undefined"])
    for output, expected in zip(sanitized(*case.inputs), reference(model)(case.inputs), strict=True):
        if case.name in APPROXIMATED_BY_TVM:
            np.testing.assert_allclose(output, expected, rtol=1e-6)
        else:
            assert output.tobytes() == expected.tobytes()
    assert "runtime error" not in capfd.readouterr().err


# The suites on a board compile all cases every day, with the board's own flags.
@pytest.mark.nightly
@all_cases
@pytest.mark.parametrize("optimisation", ["-O0", "-O3", "-Os"])
def test_operator_compiles_for_a_board_without_warnings(case: OperatorCase, optimisation: str, tmp_path: Path) -> None:
    files = write_sources(compile_model(case.model()), tmp_path)
    cpu = ["-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"]
    for file in files:
        run_tool(["arm-none-eabi-gcc", *cpu, *FLAGS, optimisation, "-c", file, "-o", file.with_suffix(".o")])


def test_case_names_are_unique() -> None:
    names = [case.name for case in OPERATOR_CASES]
    assert len(names) == len(set(names)) >= 30
