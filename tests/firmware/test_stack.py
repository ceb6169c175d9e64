# SPDX-License-Identifier: Apache-2.0
"""The stack use of a run, from the machine code, compared with GCC's figures for each function.

``tests/project/test_reentrant.py`` compares it with the use on a board.
"""

from pathlib import Path

import numpy as np
import pytest

from hil_tests.programs import handwritten
from tests.cli.running import inv
from tests.portions import by_day
from utvm import boards, firmware
from utvm.base.process import run_tool
from utvm.compiler import CompileOptions, load
from utvm.drivers import attach
from utvm.errors import ToolchainError
from utvm.firmware.stack import UnknownNeedError, measure_stack
from utvm.paths import ROOT
from utvm.session import HostDriven

DIGITS = ROOT / "models" / "digits"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("stm32f746", "digits.onnx"),
        ("microbit", "digits_int8.tflite"),
        pytest.param("pynq-z1", "digits.onnx", marks=pytest.mark.nightly),
        ("riscv-spike:core=rv64", "digits.onnx"),
    ],
)
def test_leaf_functions_use_the_stack_that_gcc_reports(name: str, model: str, tmp_path: Path) -> None:
    board = boards.load_chip(name)
    library = firmware.compile_for(board, load(DIGITS / model))
    image = firmware.build(board, [library])
    for source, text in library.sources.items():
        (tmp_path / source).write_text(text)
    flags = [*board.compiler.cpu(board.cpu).flags, *board.compiler.data.c_flags]
    for path in tmp_path.glob("*.c"):
        run_tool([board.compiler.tool("gcc"), *flags, "-fstack-usage", "-c", path, "-o", path.with_suffix(".o")])
    # FILE:LINE:COLUMN:FUNCTION, bytes and kind, separated by tabs (GCC's manual, -fstack-usage)
    lines = [line.split("\t") for file in tmp_path.glob("*.su") for line in file.read_text().splitlines()]
    golden = {line[0].rsplit(":", 1)[1]: int(line[1]) for line in lines}
    needs = [measure_stack(image, function) for function in golden if function in image.symbols]
    leaves = [need for need in needs if len(need.way) == 1]
    assert len(leaves) >= 3
    assert {need.way[0]: need.bytes for need in leaves} == {need.way[0]: golden[need.way[0]] for need in leaves}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("  return x[0] == 0 ? 0 : (y[0] += odd_run(inputs, outputs, arena));", "odd_run calls itself"),
        ("  return ((int32_t (*)(void))x[0])();", "odd_run calls through a pointer from elsewhere"),
        ("  volatile int32_t some[x[0]];\n  some[0] = y[0];\n  return some[0];", "odd_run computes its stack use"),
    ],
)
def test_unknown_stack_use_is_an_error(body: str, message: str) -> None:
    image = firmware.build(boards.load_chip("stm32f746"), [handwritten("odd", body)])
    with pytest.raises(UnknownNeedError, match=message):
        measure_stack(image, "odd_run")
    with pytest.raises(ToolchainError, match="no function even_run"):
        measure_stack(image, "even_run")


@pytest.mark.slow
@pytest.mark.parametrize("model", by_day(["digits.onnx", "digits_int8.tflite"], "digits_int8.tflite"))
def test_graph_executor_overhead_equals_the_board_s(model: str, tmp_path: Path) -> None:
    """The graph executor calls operators by a table. The rest of the board's count is the same for both executors."""
    board, network = boards.load_chip("stm32f746"), load(DIGITS / model)
    needs, measured = [], []
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        for executor in ("aot", "graph"):
            library = firmware.compile_for(board, network, CompileOptions(executor=executor))
            image = firmware.build(board, [library])
            needs.append(measure_stack(image, f"{library.name}_run", library.name))
            with HostDriven(connection, image) as session:
                port = library.inputs[0]
                measured.append(session.run(library.name, [np.zeros(port.shape, port.dtype)]).stack_used)
    assert "digits" in needs[1].way[1] and needs[1].way[1].endswith("_graph_run")
    assert needs[1].bytes - needs[0].bytes == measured[1] - measured[0] > 0
    assert 0 < needs[0].bytes < measured[0]


def test_static_functions_of_one_name_are_distinct() -> None:
    shallow = handwritten(
        "shallow", "  return inner(x[0]);", "static __attribute__((noinline)) int32_t inner(int32_t n) { return n; }\n"
    )
    deep = handwritten(
        "deep",
        "  return inner(x[0]);",
        "static __attribute__((noinline)) int32_t inner(int32_t n) {\n"
        "  volatile int32_t room[100];\n  room[n & 63] = n;\n  return room[0];\n}\n",
    )
    image = firmware.build(boards.load_chip("stm32f746"), [shallow, deep])
    assert measure_stack(image, "shallow_run").bytes < 100
    assert measure_stack(image, "deep_run").bytes >= 400


@pytest.mark.slow
def test_command_prints_the_stack_use() -> None:
    done = inv("firmware.size", "--model", DIGITS / "digits.onnx", "--board", "mps2-an385")
    assert "stack of a run: at most" in done.stdout
