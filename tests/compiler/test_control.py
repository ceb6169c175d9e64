# SPDX-License-Identifier: Apache-2.0
"""IF and WHILE of TensorFlow Lite: the reference kernels' results, branch by branch and round by round."""

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
    """Return a graph of a layer of int8 whose weights are its own."""
    graph = _graph({"x": ((1, 6), "int8"), result: ((1, 4), "int8")}, ["x"], [result])
    weights, bias = RANDOM.integers(-127, 128, (4, 6)), RANDOM.integers(-900, 900, 4)
    graph[0].tensor("w", (4, 6), "int8", weights, scale=0.01)
    graph[0].tensor("b", (4,), "int32", bias, scale=0.0005)
    graph[0].operator("FULLY_CONNECTED", ["x", "w", "b"], [result], fused_activation_function=activation)
    return graph


def branches() -> bytes:
    """Write a model that runs one of two layers, as its input says, and goes on with what that gives."""
    builder, _, _ = _graph(
        {"which": ((1,), "bool"), "x": ((1, 6), "int8"), "y": ((1, 4), "int8"), "z": ((1, 4), "int8")}, [], []
    )
    builder.operator("IF", ["which", "x"], ["y"], then_subgraph_index=1, else_subgraph_index=2)
    builder.operator("RELU", ["y"], ["z"])
    return builder.finish(["which", "x"], ["y", "z"], others=[_dense("plain", "NONE"), _dense("limited", "RELU")])


def _counting(limit: str = "LESS") -> list[Graph]:
    """Return the graphs of a loop that swaps and mixes two vectors, as often as an input says."""
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
    """Write a model of such a loop: Fibonacci's numbers, of vectors."""
    number, vector = ((1,), "int32"), ((1, 3), "float32")
    builder, _, _ = _graph({"n": number, "a": vector, "b": vector, "i": number, "m": number}, [], [])
    for name in ("c", "d"):
        builder.tensor(name, (1, 3), "float32")
    builder.tensor("zero", (1,), "int32", 0)
    builder.operator(
        "WHILE", ["zero", "n", "a", "b"], ["i", "m", "c", "d"], cond_subgraph_index=1, body_subgraph_index=2
    )
    return builder.finish(["n", "a", "b"], ["c", "d", "i"], others=_counting())


def steps(rounds: int) -> bytes:
    """Write a model of small steps: in a loop, one branch or the other, one of which computes nothing new."""
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


def counted() -> bytes:
    """Write a model that adds up numbers of a table of four, as many as an input says, and at most a thousand."""
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


def _kernels(content: bytes, inputs: Sequence[np.ndarray], outputs: int) -> list[np.ndarray]:
    interpreter = runtime.Interpreter.from_bytes(content, arena_size=1 << 16)
    for number, array in enumerate(inputs):
        interpreter.set_input(array, number)
    interpreter.invoke()
    return [np.array(interpreter.get_output(number)) for number in range(outputs)]


def _sets(content: bytes) -> list[list[np.ndarray]]:
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
def test_a_library_gives_what_the_kernels_give(content: bytes, executor: str, tmp_path: Path) -> None:
    library = compile_model(from_tflite(content, "m"), executor=executor)
    run = HostLibrary(library, tmp_path)
    for given in _sets(content):
        expected = _kernels(content, given, len(library.outputs))
        assert [each.tolist() for each in run(*given)] == [each.tolist() for each in expected]


@pytest.mark.slow
@CONTENTS
def test_so_does_the_reference_on_this_computer(content: bytes) -> None:
    model = reference(from_tflite(content, "m"))
    for given in _sets(content):
        results = model(given)
        for result, expected in zip(results, _kernels(content, given, len(results)), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-6 if result.dtype.kind == "f" else 0)


@pytest.mark.slow
def test_so_does_a_board() -> None:
    with utvm.open("stm32f746", kind="virtual") as connection:
        for content in (branches_content, rounds_content, nested_content):
            model = connection.load(compile_model(from_tflite(content, "m")))
            for given in _sets(content):
                outputs = model.run(*given).outputs
                expected = _kernels(content, given, len(outputs))
                assert [each.tolist() for each in outputs] == [each.tolist() for each in expected]


def test_a_constant_condition_leaves_one_branch() -> None:
    builder, _, _ = _graph({"x": ((1, 6), "int8"), "y": ((1, 4), "int8")}, [], [])
    builder.tensor("which", (1,), "bool", [False])
    builder.operator("IF", ["which", "x"], ["y"], then_subgraph_index=1, else_subgraph_index=2)
    # Nobody runs the other branch, which has what is not supported.
    other = _graph({"x": ((1, 6), "int8"), "y": ((1, 4), "int8")}, ["x"], ["y"])
    other[0].operator("TFLite_Detection_PostProcess", ["x"], ["y"])
    content = builder.finish(["x"], ["y"], others=[other, _dense("limited", "RELU")])
    library = compile_model(from_tflite(content, "m"))
    assert [call.kind for call in library.calls] == ["conv2d_int8"] and library.outputs[0].name == "y"


def _around(graphs: Sequence[Graph], operator: str = "IF", **tensors: tuple[tuple[int, ...], str]) -> bytes:
    """Write a model that hands an index and a table to graphs, under a condition."""
    known = {"which": ((1,), "bool"), "x": ((4, 2), "float32"), "at": ((1,), "int32"), "y": ((1, 2), "float32")}
    builder, _, _ = _graph({**known, **tensors}, [], [])
    options = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    if operator == "WHILE":
        options = {"cond_subgraph_index": 1, "body_subgraph_index": 2}
    builder.operator(operator, ["which", "x", "at"], ["y"], **options)
    return builder.finish(["which", "x", "at"], ["y"], others=graphs)


def _picking(shape: tuple[int, ...] = (4, 2)) -> Graph:
    graph = _graph({"x": (shape, "float32"), "at": ((1,), "int32"), "y": ((1, 2), "float32")}, ["x", "at"], ["y"])
    graph[0].operator("GATHER", ["x", "at"], ["y"])
    return graph


def _constant() -> Graph:
    """Return a graph that computes nothing."""
    graph = _graph({"x": ((4, 2), "float32"), "at": ((1,), "int32")}, ["x", "at"], ["y"])
    graph[0].tensor("y", (1, 2), "float32", [5, 6])
    return graph


@pytest.mark.slow
def test_index_check_counts_only_in_the_taken_branch() -> None:
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    with utvm.open("host") as connection:
        model = connection.load(from_tflite(_around([_picking(), _constant()]), "picking"))
        for which, at, expected in ((True, 2, [4.0, 5.0]), (False, 9, [5.0, 6.0])):
            (result,) = model.run(np.array([which]), table, np.array([at], np.int32)).outputs
            assert result.tolist() == [expected]
        with pytest.raises(BoardError, match="error code -16"):
            model.run(np.array([True]), table, np.array([9], np.int32))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (_around([_picking((3, 2)), _constant()]), r"IF: 'x', float32 of shape \(4, 2\), meets 'x', float32"),
        (_around([_picking(), _constant()], which=((1,), "int32")), "IF: its condition must be one tensor"),
        (_around([_picking(), _constant()], which=((2,), "bool")), "IF: its condition must be one tensor"),
        (_around([_picking()]), "IF calls graph 2, of 2"),
        (_around([_picking(), _constant()], "WHILE"), "WHILE: its condition must be one tensor"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(content: bytes, text: str) -> None:
    with pytest.raises(CompileError, match=text):
        from_tflite(content, "m")


def test_a_graph_that_calls_itself_is_refused() -> None:
    branch = _graph({"which": ((1,), "bool"), "x": ((2,), "float32"), "y": ((2,), "float32")}, ["which", "x"], ["y"])
    branch[0].operator("IF", ["which", "x"], ["y"], then_subgraph_index=1, else_subgraph_index=1)
    builder, _, _ = _graph({"which": ((1,), "bool"), "x": ((2,), "float32"), "y": ((2,), "float32")}, [], [])
    builder.operator("IF", ["which", "x"], ["y"], then_subgraph_index=1, else_subgraph_index=1)
    with pytest.raises(CompileError, match="graph 1 calls itself, which is not supported"):
        from_tflite(builder.finish(["which", "x"], ["y"], others=[branch]), "m")


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [-5, 0, 3, 4])
def test_an_input_may_say_how_often_a_loop_runs(rounds: int, tmp_path: Path) -> None:
    run = HostLibrary(compile_model(from_tflite(counted(), "m")), tmp_path)
    total, count = run(np.array([rounds], np.int32))
    assert (total.tolist(), count.tolist()) == ([sum([3, 1, 4, 1][: max(rounds, 0)])], [max(rounds, 0)])
