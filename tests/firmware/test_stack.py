# SPDX-License-Identifier: Apache-2.0
"""What a run takes of the stack, read from the code, against what GCC says of each function.

That it is what a run takes on a board is shown by ``tests/project/test_reentrant.py``.
"""

from pathlib import Path

import pytest

from hil_tests.programs import handwritten
from tests.cli.running import inv
from utvm import boards, firmware
from utvm.compiler import load
from utvm.errors import ToolchainError
from utvm.firmware.stack import UnknownNeedError, stack_need
from utvm.paths import ROOT
from utvm.process import run

DIGITS = ROOT / "models" / "digits"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("stm32f746", "digits.onnx"),
        ("microbit", "digits_int8.tflite"),
        ("pynq-z1", "digits.onnx"),
        ("riscv-spike:core=rv64", "digits.onnx"),
    ],
)
def test_a_function_that_calls_none_takes_what_gcc_says(name: str, model: str, tmp_path: Path) -> None:
    board = boards.load_chip(name)
    library = firmware.compile_for(board, load(DIGITS / model))
    image = firmware.build(board, [library])
    for source, text in library.sources.items():
        (tmp_path / source).write_text(text)
    flags = [*board.compiler.cpu(board.cpu).flags, *board.compiler.data.c_flags]
    for path in tmp_path.glob("*.c"):
        run([board.compiler.tool("gcc"), *flags, "-fstack-usage", "-c", path, "-o", path.with_suffix(".o")])
    # FILE:LINE:COLUMN:FUNCTION, bytes and kind, by tabs (GCC's manual, -fstack-usage)
    lines = [line.split("\t") for file in tmp_path.glob("*.su") for line in file.read_text().splitlines()]
    golden = {line[0].rsplit(":", 1)[1]: int(line[1]) for line in lines}
    needs = [stack_need(image, function) for function in golden if function in image.symbols]
    leaves = [need for need in needs if len(need.way) == 1]
    assert len(leaves) >= 3
    assert {need.way[0]: need.bytes for need in leaves} == {need.way[0]: golden[need.way[0]] for need in leaves}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("  return x[0] == 0 ? 0 : (y[0] += odd_run(inputs, outputs, arena));", "odd_run calls itself"),
        ("  return ((int32_t (*)(void))x[0])();", "odd_run calls through a pointer from elsewhere"),
        ("  volatile int32_t some[x[0]];\n  some[0] = y[0];\n  return some[0];", "odd_run takes as much"),
    ],
)
def test_what_no_reader_can_know_is_said(body: str, said: str) -> None:
    image = firmware.build(boards.load_chip("stm32f746"), [handwritten("odd", body)])
    with pytest.raises(UnknownNeedError, match=said):
        stack_need(image, "odd_run")
    with pytest.raises(ToolchainError, match="no function even_run"):
        stack_need(image, "even_run")


def test_the_command_prints_it() -> None:
    done = inv("firmware.size", "--model", DIGITS / "digits.onnx", "--board", "mps2-an385")
    assert "stack of a run: at most" in done.stdout
