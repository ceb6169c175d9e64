# SPDX-License-Identifier: Apache-2.0
"""IF and WHILE of TensorFlow Lite equal the reference kernels in all branches and iterations."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from host_library import HostLibrary
from tflite_micro.python.tflite_micro import runtime

import utvm
from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_tflite, reference
from utvm.errors import BoardError, CompileError

RANDOM = np.random.default_rng(16)
Graph = tuple[Builder, Sequence[str], Sequence[str]]


def _graph(tensors: dict[str, tuple[tuple[int, ...], str]], inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
    builder = Builder()
    for name, (shape, dtype) in tensors.items():
        scale = {"scale": 0.05, "zero_point": -3} if dtype == "int8" else {}
        builder.tensor(name, shape, dtype, **scale)
    return builder, inputs, outputs


def _dense(result: str, activation: str) -> Graph:
    """A graph of an int8 layer with constant weights."""
    graph = _graph({"x": ((1, 6), "int8"), result: ((1, 4), "int8")}, ["x"], [result])
    weights, bias = RANDOM.integers(-127, 128, (4, 6)), RANDOM.integers(-900, 900, 4)
    graph[0].tensor("w", (4, 6), "int8", weights, scale=0.01)
    graph[0].tensor("b", (4,), "int32", bias, scale=0.0005)
    graph[0].operator("FULLY_CONNECTED", ["x", "w", "b"], [result], fused_activation_function=activation)
    return graph


def branches() -> bytes:
    """A model that runs one of two layers, selected by its input, and a layer after it."""
    builder, _, _ = _graph(
        {"which": ((1,), "bool"), "x": ((1, 6), "int8"), "y": ((1, 4), "int8"), "z": ((1, 4), "int8")}, [], []
    )
    builder.operator("IF", ["which", "x"], ["y"], then_subgraph_index=1, else_subgraph_index=2)
    builder.operator("RELU", ["y"], ["z"])
    return builder.finish(["which", "x"], ["y", "z"], others=[_dense("plain", "NONE"), _dense("limited", "RELU")])


def loop_graphs(limit: str = "LESS") -> list[Graph]:
    """Graphs of a loop that swaps and mixes two vectors, with the iterations from an input."""
    number = ((1,), "int32")
    known = {"i": number, "n": number, "a": ((1, 3), "float32"), "b": ((1, 3), "float32")}
    condition = _graph({**known, "more": ((1,), "bool")}, list(known), ["more"])
    condition[0].operator(limit, ["i", "n"], ["more"])
    body = _graph({**known, "next": number, "sum": ((1, 3), "float32")}, list(known), ["next", "n", "b", "sum"])
    body[0].tensor("one", (1,), "int32", 1)
    body[0].operator("ADD", ["i", "one"], ["next"])
    body[0].operator("ADD", ["a", "b"], ["sum"])
    return [condition, body]


def rounds() -> bytes:
    """A model of that loop: Fibonacci numbers of vectors."""
    number, vector = ((1,), "int32"), ((1, 3), "float32")
    builder, _, _ = _graph({"n": number, "a": vector, "b": vector, "i": number, "m": number}, [], [])
    for name in ("c", "d"):
        builder.tensor(name, (1, 3), "float32")
    builder.tensor("zero", (1,), "int32", 0)
    builder.operator(
        "WHILE", ["zero", "n", "a", "b"], ["i", "m", "c", "d"], cond_subgraph_index=1, body_subgraph_index=2
    )
    return builder.finish(["n", "a", "b"], ["c", "d", "i"], others=loop_graphs())


def steps(rounds: int) -> bytes:
    """A model of scalar steps: an IF in a WHILE; one branch computes nothing."""
    number, flag = ((1,), "int32"), ((1,), "bool")
    builder, _, _ = _graph({"n": number, "i": number, "m": number}, [], [])
    builder.tensor("zero", (1,), "int32", 0)
    builder.operator("WHILE", ["zero", "n"], ["i", "m"], cond_subgraph_index=1, body_subgraph_index=2)
    condition = _graph({"i": number, "n": number, "more": flag}, ["i", "n"], ["more"])
    condition[0].tensor("rounds", (1,), "int32", rounds)
    condition[0].operator("LESS", ["i", "rounds"], ["more"])
    known = {"i": number, "n": number, "next": number, "rest": number, "odd": flag, "m": number}
    body = _graph(known, ["i", "n"], ["next", "m"])
    for name, value in (("one", 1), ("two", 2), ("zero", 0)):
        body[0].tensor(name, (1,), "int32", value)
    body[0].operator("ADD", ["i", "one"], ["next"])
    body[0].operator("LESS", ["zero", "n"], ["odd"])
    body[0].operator("SUB", ["n", "two"], ["rest"])
    body[0].operator("IF", ["odd", "n", "rest"], ["m"], then_subgraph_index=3, else_subgraph_index=4)
    less = _graph({"n": number, "rest": number}, ["n", "rest"], ["rest"])
    more = _graph({"n": number, "rest": number, "m": number}, ["n", "rest"], ["m"])
    more[0].tensor("three", (1,), "int32", 3)
    more[0].operator("MUL", ["n", "three"], ["m"])
    return builder.finish(["n"], ["m", "i"], others=[condition, body, less, more])


def bounded_sum() -> bytes:
    """A model that sums numbers of a table of four; an input gives the count, at most a thousand."""
    number, flag = ((1,), "int32"), ((1,), "bool")
    builder, _, _ = _graph(dict.fromkeys(("n", "some", "i", "m", "sum"), number), [], [])
    for name, value in (("zero", 0), ("nothing", 0), ("most", 1000)):
        builder.tensor(name, (1,), "int32", value)
    builder.operator("MINIMUM", ["n", "most"], ["some"])
    builder.operator(
        "WHILE", ["zero", "some", "nothing"], ["i", "m", "sum"], cond_subgraph_index=1, body_subgraph_index=2
    )
    condition = _graph({"i": number, "n": number, "sum": number, "more": flag}, ["i", "n", "sum"], ["more"])
    condition[0].operator("LESS", ["i", "n"], ["more"])
    known = dict.fromkeys(("i", "n", "sum", "next", "one", "later"), number)
    body = _graph(known, ["i", "n", "sum"], ["next", "n", "later"])
    body[0].tensor("step", (1,), "int32", 1)
    body[0].tensor("table", (4,), "int32", [3, 1, 4, 1])
    body[0].operator("ADD", ["i", "step"], ["next"])
    body[0].operator("GATHER", ["table", "i"], ["one"])
    body[0].operator("ADD", ["sum", "one"], ["later"])
    return builder.finish(["n"], ["sum", "i"], others=[condition, body])


def run_kernels(content: bytes, inputs: Sequence[np.ndarray], outputs: int) -> list[np.ndarray]:
    interpreter = runtime.Interpreter.from_bytes(content, arena_size=1 << 16)
    for number, array in enumerate(inputs):
        interpreter.set_input(array, number)
    interpreter.invoke()
    return [np.array(interpreter.get_output(number)) for number in range(outputs)]


def inputs_of(content: bytes) -> list[list[np.ndarray]]:
    if content == branches_content:
        return [[np.array([which]), RANDOM.integers(-128, 128, (1, 6)).astype(np.int8)] for which in (True, False)]
    if content == nested_content:
        return [[np.array([start], np.int32)] for start in (5, -1, 0)]
    vectors = [np.array([[1, 2, 0.5]], np.float32), np.array([[1, -1, 3]], np.float32)]
    return [[np.array([count], np.int32), *vectors] for count in (0, 1, 7)]


branches_content, rounds_content, nested_content = branches(), rounds(), steps(5)
CONTENTS = pytest.mark.parametrize(
    "content", [branches_content, rounds_content, nested_content], ids=["if", "while", "if in while"]
)


@pytest.mark.slow
@CONTENTS
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_library_equals_the_kernels(content: bytes, executor: str, tmp_path: Path) -> None:
    library = compile_model(from_tflite(content, "m"), executor=executor)
    run = HostLibrary(library, tmp_path)
    for inputs in inputs_of(content):
        expected = run_kernels(content, inputs, len(library.outputs))
        assert [output.tolist() for output in run(*inputs)] == [
            expected_output.tolist() for expected_output in expected
        ]


@pytest.mark.slow
@CONTENTS
def test_host_reference_equals_the_kernels(content: bytes) -> None:
    model = reference(from_tflite(content, "m"))
    for inputs in inputs_of(content):
        results = model(inputs)
        for result, expected in zip(results, run_kernels(content, inputs, len(results)), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-6 if result.dtype.kind == "f" else 0)


@pytest.mark.slow
def test_board_equals_the_kernels() -> None:
    with utvm.open("stm32f746", kind="virtual") as connection:
        for content in (branches_content, rounds_content, nested_content):
            model = connection.load(compile_model(from_tflite(content, "m")))
            for inputs in inputs_of(content):
                outputs = model.run(*inputs).outputs
                expected = run_kernels(content, inputs, len(outputs))
                assert [output.tolist() for output in outputs] == [
                    expected_output.tolist() for expected_output in expected
                ]


def test_constant_condition_removes_a_branch() -> None:
    builder, _, _ = _graph({"x": ((1, 6), "int8"), "y": ((1, 4), "int8")}, [], [])
    builder.tensor("which", (1,), "bool", [False])
    builder.operator("IF", ["which", "x"], ["y"], then_subgraph_index=1, else_subgraph_index=2)
    # The other branch, with an unsupported operator, never runs.
    unused = _graph({"x": ((1, 6), "int8"), "y": ((1, 4), "int8")}, ["x"], ["y"])
    unused[0].operator("TFLite_Detection_PostProcess", ["x"], ["y"])
    content = builder.finish(["x"], ["y"], others=[unused, _dense("limited", "RELU")])
    library = compile_model(from_tflite(content, "m"))
    assert [call.kind for call in library.calls] == ["conv2d_int8"] and library.outputs[0].name == "y"


def conditional(graphs: Sequence[Graph], operator: str = "IF", **tensors: tuple[tuple[int, ...], str]) -> bytes:
    """A model that passes an index and a table to graphs, under a condition."""
    known = {"which": ((1,), "bool"), "x": ((4, 2), "float32"), "at": ((1,), "int32"), "y": ((1, 2), "float32")}
    builder, _, _ = _graph({**known, **tensors}, [], [])
    options = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    if operator == "WHILE":
        options = {"cond_subgraph_index": 1, "body_subgraph_index": 2}
    builder.operator(operator, ["which", "x", "at"], ["y"], **options)
    return builder.finish(["which", "x", "at"], ["y"], others=graphs)


def gathering(shape: tuple[int, ...] = (4, 2)) -> Graph:
    graph = _graph({"x": (shape, "float32"), "at": ((1,), "int32"), "y": ((1, 2), "float32")}, ["x", "at"], ["y"])
    graph[0].operator("GATHER", ["x", "at"], ["y"])
    return graph


def constant() -> Graph:
    """A graph without operators."""
    graph = _graph({"x": ((4, 2), "float32"), "at": ((1,), "int32")}, ["x", "at"], ["y"])
    graph[0].tensor("y", (1, 2), "float32", [5, 6])
    return graph


@pytest.mark.slow
def test_index_is_checked_only_in_the_taken_branch() -> None:
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    with utvm.open("host") as connection:
        model = connection.load(from_tflite(conditional([gathering(), constant()]), "picking"))
        for which, index, expected in ((True, 2, [4.0, 5.0]), (False, 9, [5.0, 6.0])):
            (result,) = model.run(np.array([which]), table, np.array([index], np.int32)).outputs
            assert result.tolist() == [expected]
        with pytest.raises(BoardError, match="error code -16"):
            model.run(np.array([True]), table, np.array([9], np.int32))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (conditional([gathering((3, 2)), constant()]), r"IF: 'x', float32 of shape \(4, 2\), meets 'x', float32"),
        (conditional([gathering(), constant()], which=((1,), "int32")), "IF: its condition must be one tensor"),
        (conditional([gathering(), constant()], which=((2,), "bool")), "IF: its condition must be one tensor"),
        (conditional([gathering()]), "IF calls graph 2, of 2"),
        (conditional([gathering(), constant()], "WHILE"), "WHILE: its condition must be one tensor"),
    ],
)  # fmt: skip
def test_mismatched_graphs_are_refused(content: bytes, text: str) -> None:
    with pytest.raises(CompileError, match=text):
        from_tflite(content, "m")


def test_recursive_graph_is_refused() -> None:
    branch = _graph({"which": ((1,), "bool"), "x": ((2,), "float32"), "y": ((2,), "float32")}, ["which", "x"], ["y"])
    branch[0].operator("IF", ["which", "x"], ["y"], then_subgraph_index=1, else_subgraph_index=1)
    builder, _, _ = _graph({"which": ((1,), "bool"), "x": ((2,), "float32"), "y": ((2,), "float32")}, [], [])
    builder.operator("IF", ["which", "x"], ["y"], then_subgraph_index=1, else_subgraph_index=1)
    with pytest.raises(CompileError, match="graph 1 calls itself, which is not supported"):
        from_tflite(builder.finish(["which", "x"], ["y"], others=[branch]), "m")


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [-5, 0, 3, 4])
def test_loop_count_may_be_an_input(rounds: int, tmp_path: Path) -> None:
    run = HostLibrary(compile_model(from_tflite(bounded_sum(), "m")), tmp_path)
    total, count = run(np.array([rounds], np.int32))
    assert (total.tolist(), count.tolist()) == ([sum([3, 1, 4, 1][: max(rounds, 0)])], [max(rounds, 0)])
