# SPDX-License-Identifier: Apache-2.0
"""Models with state between runs equal TensorFlow Lite Micro with all executors, until a reset of the state."""

import numpy as np
import pytest
from tflite_micro.python.tflite_micro import runtime

import utvm
from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_tflite, reference
from utvm.errors import BoardError, CompileError, ConfigError

STEPS = [np.array([[step, -step, 2 * step, 0.5]], np.float32) for step in (1, 2, 3, 4)]
BEGIN = np.array([[10, 20, 30, 40]], np.float32)


def _handles(builder: Builder, *names: str) -> None:
    for name in names:
        builder.tensor(name, (1,), "resource")
        builder.operator("VAR_HANDLE", [], [name], container="", shared_name=name)


def initial_graph(assigned: bool = True) -> Builder:
    """The graph that assigns the sum's initial value."""
    once = Builder()
    _handles(once, "sum")
    once.tensor("begin", (1, 4), "float32", BEGIN)
    if assigned:
        once.operator("ASSIGN_VARIABLE", ["sum", "begin"], [])
    else:
        once.tensor("twice", (1, 4), "float32")
        once.operator("ADD", ["begin", "begin"], ["twice"])
        once.operator("ASSIGN_VARIABLE", ["sum", "twice"], [])
    return once


def streaming(assigned: bool = True, index: bool = False) -> bytes:
    """A model that sums its inputs, and returns its input of two runs ago."""
    builder = Builder()
    for name in ("x", "old", "new", "last", "older"):
        builder.tensor(name, (1, 4), "float32")
    builder.operator("CALL_ONCE", [], [], init_subgraph_index=1)
    _handles(builder, "sum", "one", "two")
    builder.operator("READ_VARIABLE", ["sum"], ["old"])
    builder.operator("ADD", ["old", "x"], ["new"])
    builder.operator("ASSIGN_VARIABLE", ["sum", "new"], [])
    builder.operator("READ_VARIABLE", ["one"], ["last"])
    builder.operator("READ_VARIABLE", ["two"], ["older"])
    builder.operator("ASSIGN_VARIABLE", ["two", "last"], [])
    builder.operator("ASSIGN_VARIABLE", ["one", "x"], [])
    if not index:
        return builder.finish(["x"], ["new", "older"], others=[(initial_graph(assigned), [], [])])
    builder.tensor("at", (1,), "int32")
    builder.tensor("row", (1, 4), "float32")
    builder.operator("GATHER", ["new", "at"], ["row"])
    return builder.finish(["x", "at"], ["row"], others=[(initial_graph(), [], [])])


def run_kernels() -> list[list[np.ndarray]]:
    interpreter = runtime.Interpreter.from_bytes(streaming(), arena_size=1 << 16)
    results = []
    for step in STEPS:
        interpreter.set_input(step, 0)
        interpreter.invoke()
        results.append([np.array(interpreter.get_output(number)) for number in (0, 1)])
    return results


@pytest.mark.slow
@pytest.mark.parametrize(("board", "executor"), [("host", "aot"), ("host", "graph"), ("stm32f746", "aot")])
def test_states_last_until_a_reset(board: str, executor: str) -> None:
    library = compile_model(from_tflite(streaming(), "streaming"), executor=executor)
    assert library.state_bytes == 3 * 16 and len(library.inputs) == 1 and len(library.outputs) == 2
    expected = run_kernels()
    np.testing.assert_array_equal(expected[0][0], BEGIN + STEPS[0])
    np.testing.assert_array_equal(expected[3][1], STEPS[1])
    with utvm.open(board, kind="auto" if board == "host" else "virtual") as connection:
        model = connection.load(library)
        for _ in range(2):
            for step, expected_outputs in zip(STEPS, expected, strict=True):
                for output, golden in zip(model.run(step).outputs, expected_outputs, strict=True):
                    np.testing.assert_array_equal(output, golden)
            model.forget()


def test_host_reference_has_the_same_states() -> None:
    model = reference(from_tflite(streaming(), "streaming"))
    for step, expected_outputs in zip(STEPS, run_kernels(), strict=True):
        for output, golden in zip(model([step]), expected_outputs, strict=True):
            np.testing.assert_array_equal(output, golden)


@pytest.mark.slow
def test_failed_run_does_not_change_states() -> None:
    inside, outside = np.zeros(1, np.int32), np.full(1, 9, np.int32)
    plain = Builder()
    for name in ("x", "y"):
        plain.tensor(name, (1, 4), "float32")
    plain.operator("RELU", ["x"], ["y"])
    with utvm.open("host") as connection:
        model = connection.load(from_tflite(streaming(index=True), "picking"))
        with pytest.raises(BoardError, match="error code -16"):
            model.run(STEPS[3], outside)
        np.testing.assert_array_equal(model.run(STEPS[0], inside).outputs[0], BEGIN + STEPS[0])
        stateless = connection.load(from_tflite(plain.finish(["x"], ["y"]), "plain"))
        with pytest.raises(ConfigError, match="plain has no state between runs"):
            stateless.forget()


def test_initial_value_must_be_constant() -> None:
    with pytest.raises(CompileError, match="CALL_ONCE: its graph has ADD, where only constants may be assigned"):
        from_tflite(streaming(assigned=False), "bad")


def test_variable_has_one_shape() -> None:
    builder = Builder()
    builder.tensor("x", (1, 4), "float32")
    builder.tensor("old", (1, 3), "float32")
    builder.tensor("y", (1, 3), "float32")
    _handles(builder, "kept")
    builder.operator("READ_VARIABLE", ["kept"], ["old"])
    builder.operator("RELU", ["old"], ["y"])
    builder.operator("ASSIGN_VARIABLE", ["kept", "x"], [])
    with pytest.raises(CompileError, match=r"variable 'kept' is float32 of shape \(1, 3\) where it is read"):
        from_tflite(builder.finish(["x"], ["y"]), "bad")


def test_state_must_be_a_variable() -> None:
    builder = Builder()
    for name, shape in (("x", (1, 2)), ("f", (1, 2)), ("t", (1, 3)), ("b", (1,)), ("s", (1, 3)), ("y", (1, 1))):
        builder.tensor(name, shape, "float32", None if name in "xsy" else 1.0)
    builder.operator("SVDF", ["x", "f", "t", "b", "s"], ["y"], rank=1)
    with pytest.raises(CompileError, match="its operands 4 must be variable tensors"):
        compile_model(from_tflite(builder.finish(["x", "s"], ["y"]), "bad"))


def test_first_of_several_signatures_is_used() -> None:
    """As in TFLM, unused graphs, even invalid ones, do not count."""
    first, second = Builder(), Builder()
    for builder, operator in ((first, "RELU"), (second, "NOT_AN_OPERATOR")):
        builder.tensor("x", (1, 4), "float32")
        builder.tensor("y", (1, 4), "float32")
        builder.operator(operator, ["x"], ["y"])
    content = first.finish(["x"], ["y"], others=[(second, ["x"], ["y"])])
    (result,) = reference(from_tflite(content, "first"))([STEPS[0]])
    np.testing.assert_array_equal(result, np.maximum(STEPS[0], 0))
