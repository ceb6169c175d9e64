# SPDX-License-Identifier: Apache-2.0
"""Models that cannot be compiled have one clear message each."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from utvm.compiler import compile_model, from_onnx, from_relax, load
from utvm.errors import CompileError, ConfigError, UtvmError

DIGITS = Path(__file__).parents[2] / "models" / "digits" / "digits.onnx"
FLOAT = TensorProto.FLOAT


def value(name: str, shape: Sequence[int | str], kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    stored: Sequence[onnx.TensorProto] = (),
    opset: int = 18,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("acme", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, outputs, name=f"the_{outputs[0]}", **attributes)


def refusal(proto: onnx.ModelProto) -> str:
    with pytest.raises(CompileError) as caught:
        compile_model(from_onnx(proto.SerializeToString(), "bad"))
    return str(caught.value)


def identity(shape: Sequence[int | str], kind: int = FLOAT) -> onnx.ModelProto:
    return model([node("Identity", ["x"], ["y"])], [value("x", shape, kind)], [value("y", shape, kind)])


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.onnx: cannot be read: there is no such file"):
        load(tmp_path / "nothing.onnx")


def test_folder_and_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in ((tmp_path, "is a folder"), (tmp_path / "pipe", "is not a regular file")):
        with pytest.raises(ConfigError, match=message):
            load(path)


def test_file_of_size_zero_is_not_read(tmp_path: Path) -> None:
    """Files of /proc have size zero; one of them, /proc/kmsg, never ends."""
    (tmp_path / "m.onnx").touch()
    for path in (tmp_path / "m.onnx", Path("/proc/self/status")):
        with pytest.raises(ConfigError, match=f"{path}: is empty"):
            load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"hello, world\n", "is not an ONNX file"), (b"\x7fELF" + bytes(100), "is a program, not a model")],
)
def test_other_file_formats_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / "m.onnx")


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.9, 0.999])
def test_truncated_file_is_refused(fraction: float, tmp_path: Path) -> None:
    content = DIGITS.read_bytes()
    (tmp_path / "m.onnx").write_bytes(content[: int(len(content) * fraction)])
    with pytest.raises(UtvmError, match=r"part of one|breaks|produces|empty|operator set|holds"):
        load(tmp_path / "m.onnx")


def test_huge_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "m.onnx").open("wb") as file:
        file.truncate(1 << 40)  # A sparse file uses no space on the disk.
    with pytest.raises(ConfigError, match="too long for any board"):
        load(tmp_path / "m.onnx")


def test_empty_graph_is_refused() -> None:
    assert "the graph is empty" in refusal(model([], [value("x", [1])], [value("x", [1])]))


def test_dynamic_dimension_is_named_with_a_hint() -> None:
    text = refusal(identity(["N", 4]))
    assert "input 'x': dimension 0 (N) has no fixed size" in text
    assert "batch is usually 1" in text


def test_all_invalid_inputs_are_named() -> None:
    inputs = [value(name, ["N", 4]) for name in "abcdef"] + [value("s", [2], TensorProto.STRING)]
    half = helper.make_tensor("h", TensorProto.COMPLEX64, [1], [1.0])
    text = refusal(model([node("Sum", "abcdef", ["y"])], inputs, [value("y", ["N", 4])], [half]))
    assert "for 3 reasons" in text and "constant 'h': has elements of type complex64" in text
    assert "input 'a', input 'b', input 'c', input 'd' and 2 more: dimension 0 (N) has no fixed size" in text
    assert "input 's': has elements of type string" in text and "give --set shape" in text


def test_input_without_a_shape_is_refused() -> None:
    proto = identity([1])
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert "input 'x': has no shape" in refusal(proto)


def test_unsupported_operators_are_named_with_nodes() -> None:
    proto = model(
        [
            node("Frobnicate", ["x"], ["a"], domain="acme"),
            node("Relu", ["a"], ["b"]),
            node("LSTM", ["b", "w", "r"], ["c"], hidden_size=1),
            node("StringNormalizer", ["c"], ["y"]),
        ],
        [value("x", [1, 1, 1]), value("w", [1, 4, 1]), value("r", [1, 4, 1])],
        [value("y", [1, 1, 1, 1])],
    )
    proto.graph.node[3].op_type = "Sinkhole"
    proto.graph.node[3].domain = "acme"
    text = refusal(proto)
    for name in ("Frobnicate (at the_a)", "LSTM (at the_c)", "Sinkhole (at the_y)"):
        assert name in text
    assert "Relu" not in text


def test_operator_without_code_is_named() -> None:
    builder = relax.BlockBuilder()
    row = relax.Var("x", relax.TensorType((3, 4), "float32"))
    with builder.function("main", [row]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.sort(row))
        builder.emit_func_output(result)
    with pytest.raises(CompileError, match="operators without an implementation in C: sort"):
        compile_model(from_relax(builder.get(), "bad"))


def test_all_reasons_are_named() -> None:
    proto = model(
        [
            node("Dropout", ["x", "", "training"], ["a"]),
            node("NonZero", ["a"], ["places"]),
            node("RoiAlign", ["x", "regions", "numbers"], ["b"], mode="max"),
            node("StringSplit", ["b"], ["y"]),
        ],
        [value("x", [1, 1, 4, 4]), value("regions", [1, 4]), value("numbers", [1], TensorProto.INT64)],
        [value("y", [1, 1, 1, 1])],
        [numpy_helper.from_array(np.array(True), "training")],
    )
    proto.graph.node[3].domain, proto.graph.node[3].op_type = "acme", "Sinkhole"
    text = refusal(proto)
    for reason in (
        "Sinkhole (at the_y)",
        "Dropout (at the_a): training mode, which is random, is not supported",
        "NonZero (at the_places): the size of its result depends on the data",
        "RoiAlign (at the_b): the mode max is not supported",
    ):
        assert reason in text


def test_reasons_of_all_stages_are_unique_lines() -> None:
    """A rule, the importer and the list of operators refuse one each; equal reasons are one line."""
    proto = model(
        [
            node("Dropout", ["x", "", "training"], ["a"]),
            node("Cast", ["a"], ["b"], to=TensorProto.INT32),
            node("BitCast", ["b"], ["c"], to=TensorProto.FLOAT),
            *(node("Sinkhole", ["c"], [f"d{number}"], domain="acme") for number in range(3)),
        ],
        [value("x", [2, 4])],
        [value("d2", [2, 4])],
        [numpy_helper.from_array(np.array(True), "training")],
        opset=26,
    )
    first, *lines, hint = refusal(proto).splitlines()
    assert first == "ONNX model bad: cannot be compiled, for 3 reasons:"
    assert [line.strip() for line in lines] == [
        "operators that are not supported: Sinkhole (at the_d0), Sinkhole (at the_d1), Sinkhole (at the_d2)",
        "Dropout (at the_a): training mode, which is random, is not supported",
        "BitCast (at the_c): bits of int32 read as float32 are not supported",
    ]
    assert "docs/compiler.md" in hint


def test_many_reasons_are_counted() -> None:
    nodes = [node("Dropout", ["x", "", "training"], [f"a{number}"]) for number in range(25)]
    stored = [numpy_helper.from_array(np.array(True), "training")]
    lines = refusal(model(nodes, [value("x", [2])], [value("a24", [2])], stored)).splitlines()
    assert (len(lines), lines[-2].strip()) == (23, "and 5 more")


def test_newer_version_is_named_with_a_hint() -> None:
    newer = onnx.defs.onnx_opset_version() + 1
    relu = [node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])]
    text = refusal(model(*relu, opset=newer))
    assert f"needs operator set {newer}; 1 to {newer - 1} are known" in text
    assert "onnx.version_converter.convert_version" in text
    proto = model(*relu)
    newest, proto.ir_version = onnx.IR_VERSION, onnx.IR_VERSION + 1
    assert f"IR version {newest + 1}; 1 to {newest} are known\n  hint: set model" in refusal(proto)


def test_operator_without_a_fixed_size_is_named() -> None:
    proto = model([node("NonZero", ["x"], ["y"])], [value("x", [3, 4])], [value("y", [2, "n"], TensorProto.INT64)])
    assert "nonzero" in refusal(proto).lower()


def test_control_flow_is_refused() -> None:
    branch = helper.make_graph([node("Identity", ["x"], ["z"])], "b", [], [value("z", [2])])
    proto = model(
        [node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)],
        [value("x", [2]), value("c", [], TensorProto.BOOL)],
        [value("y", [2])],
    )
    assert "If (at the_y)" in refusal(proto)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TensorProto.INT4, "int4"),
        (TensorProto.STRING, "string"),
        (TensorProto.COMPLEX64, "complex64"),
        (TensorProto.FLOAT8E4M3FN, "float8e4m3fn"),
    ],
)
def test_unsupported_element_type_is_named(kind: int, name: str) -> None:
    assert f"elements of type {name}, which is not supported" in refusal(identity([2], kind))


def test_tensor_without_elements_is_refused() -> None:
    assert "has no elements: shape (2, 0)" in refusal(identity([2, 0]))


@pytest.mark.parametrize("shape", [[1 << 40], [1 << 20, 1 << 20], [1 << 62, 1 << 62]])
def test_huge_shape_is_refused_before_allocation(shape: list[int]) -> None:
    with pytest.raises(CompileError, match="too large"):
        from_onnx(identity(shape).SerializeToString(), "bad")


def test_huge_computed_tensor_is_refused() -> None:
    shape = numpy_helper.from_array(np.array([1 << 20, 1 << 20]), "shape")
    proto = model(
        [node("ConstantOfShape", ["shape"], ["big"]), node("ReduceSum", ["big"], ["s"], keepdims=0),
         node("Add", ["x", "s"], ["y"])],
        [value("x", [1])], [value("y", [1])], [shape],
    )  # fmt: skip
    with pytest.raises(CompileError, match="tensor 'big': is too large"):
        from_onnx(proto.SerializeToString(), "bad")


def test_cycle_is_named() -> None:
    proto = model(
        [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])],
        [value("x", [1])],
        [value("y", [1])],
    )
    assert "the graph has a cycle through node 'the_a' (Add)" in refusal(proto)


def test_dangling_input_is_named() -> None:
    proto = model([node("Relu", ["nowhere"], ["y"])], [value("x", [1])], [value("y", [1])])
    assert "nothing produces 'nowhere', which node 'the_y' (Relu) reads" in refusal(proto)


def test_missing_required_input_is_named() -> None:
    concat = node("Concat", ["x", ""], ["y"], axis=0)
    proto = model([concat], [value("x", [2])], [value("y", [2])])
    assert "node 'the_y' (Concat) lacks its input 1, inputs" in refusal(proto)


def test_invalid_utf8_is_refused() -> None:
    content = identity([2]).SerializeToString().replace(b"Identity", b"Identit\xff")
    with pytest.raises(CompileError, match="breaks ONNX's rules: a name in it is not UTF-8"):
        from_onnx(content, "bad")


def test_refusal_has_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "cycle.onnx"
    path.write_bytes(model([node("Relu", ["y"], ["y"])], [value("x", [2])], [value("y", [2])]).SerializeToString())
    with pytest.raises(CompileError, match=r"cycle[^\n]*\n  hint: export the model again"):
        load(path)


def test_mismatched_shapes_are_refused() -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 3]), value("w", [4, 5])], [value("y", [2, 5])])
    assert "breaks ONNX's rules" in refusal(proto)


def test_weights_of_another_size_are_refused() -> None:
    proto = onnx.load(DIGITS)
    proto.graph.initializer[0].raw_data = proto.graph.initializer[0].raw_data[:-4]
    assert "holds 572 bytes where its shape needs 576" in refusal(proto)


def test_unknown_operator_set_is_named() -> None:
    assert "needs operator set 999; 1 to 2" in refusal(model(
        [node("Relu", ["x"], ["y"])], [value("x", [1])], [value("y", [1])], opset=999
    ))  # fmt: skip


def external(tmp_path: Path, damage: Callable[[Path], None]) -> Path:
    onnx.save_model(
        onnx.load(DIGITS), tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0
    )
    damage(tmp_path / "m.bin")
    return tmp_path / "m.onnx"


@pytest.mark.slow
def test_external_weights_are_read(tmp_path: Path) -> None:
    path = external(tmp_path, lambda data: None)
    inside, outside = compile_model(load(DIGITS), name="d"), compile_model(load(path), name="d")
    assert inside.digest == outside.digest


def test_missing_weights_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"in another file, 'm\.bin', which is missing"):
        load(external(tmp_path, Path.unlink))


def test_short_weights_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UtvmError):
        load(external(tmp_path, lambda data: data.write_bytes(b"12345")))


def test_weights_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(30000))
    (tmp_path / "model").mkdir()
    proto = onnx.load(external(tmp_path, lambda data: None), load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../secret"
    (tmp_path / "model" / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(UtvmError):
        load(tmp_path / "model" / "m.onnx")


def test_refusal_prints_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    proto = model(
        [node("Conv", ["x", "w"], ["y"], group=3)],
        [value("x", [1, 3, 5, 5]), value("w", [2, 3, 3, 3])],
        [value("y", [1, 2, 3, 3])],
    )
    assert "bad" in refusal(proto)
    assert capfd.readouterr() == ("", "")
    assert compile_model(load(DIGITS), name="afterwards").operators
