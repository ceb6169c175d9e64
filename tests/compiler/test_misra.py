# SPDX-License-Identifier: Apache-2.0
"""MISRA C:2012 by cppcheck: every deviation has a reason, and no mandatory rule is broken."""

from pathlib import Path

import numpy as np
import pytest
import test_control
import test_states
from host_library import write_sources
from tflite_layers import draw_layer

from models.tflite_writer import Builder
from utvm import boards
from utvm.compiler import Target, compile_model, from_tflite, load
from utvm.compiler.package.misra import Reasons, misra_counts, misra_findings, reasons, runtime_findings, total
from utvm.compiler.target import Goal
from utvm.errors import ToolchainError
from utvm.paths import ROOT


def assert_explained(counts: dict[str, int]) -> None:
    assert not reasons().list_unexplained(counts), "give a reason in docs/misra.yaml, or mend the code"


PORTS: dict[str, list[Path]] = {}
# One port serves only third-party boards.
_FOREIGN = [boards.load(str(path.parent)) for path in (ROOT / "tests/boards/foreign").glob("*/board.yaml")]
for _board in (*boards.chips(), *_FOREIGN):
    _own = PORTS.setdefault(_board.architecture, [])
    # Some boards share a port.
    if _board.port_source not in _own:
        _own.append(_board.port_source)


def test_all_ports_belong_to_boards() -> None:
    c_files = [*(ROOT / "utvm/boards").rglob("*.c"), *(ROOT / "utvm/runtime").glob("*/ports/*.c")]
    assert {path for own in PORTS.values() for path in own} == set(c_files)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "stride"),
    # Most of an image's C is common.
    [("cortex_m", 6), *(pytest.param(name, 1, marks=pytest.mark.nightly) for name in PORTS)],
)
def test_runtime_breaks_only_rules_with_a_reason(architecture: str, stride: int) -> None:
    findings = runtime_findings({architecture: PORTS[architecture]}, stride)
    counts = {rule: len(places) for rule, places in findings.items()}
    assert architecture != "cortex_m" or counts["11.4"] > 0, "cppcheck has not seen a microcontroller's registers"
    assert_explained(counts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        # cppcheck takes longer for their kernels.
        pytest.param(test_control.branches_content, marks=pytest.mark.nightly),
        pytest.param(test_control.nested_content, marks=pytest.mark.nightly),
        test_states.streaming(index=True),
        draw_layer("SVDF", "int8", 1)[0],
    ],
    ids=["if", "if in while", "variables", "states"],
)
def test_control_flow_breaks_only_rules_with_a_reason(content: bytes, tmp_path: Path) -> None:
    library = compile_model(from_tflite(content, "m"))
    assert_explained(misra_counts(write_sources(library, tmp_path), [tmp_path]))


@pytest.mark.slow
@pytest.mark.parametrize(
    # cppcheck takes longer for its kernels.
    "model",
    ["digits.onnx", pytest.param("digits_int8.tflite", marks=pytest.mark.nightly)],
)
def test_libraries_break_only_rules_with_a_reason(model: str, tmp_path: Path) -> None:
    library = compile_model(load(ROOT / "models" / "digits" / model))
    counts = misra_counts(write_sources(library, tmp_path), [tmp_path])
    assert counts["8.14"] > 0, "operators have restrict pointers: cppcheck has not seen them"
    assert_explained(counts)


@pytest.mark.slow
def test_winograd_breaks_only_rules_with_a_reason(tmp_path: Path) -> None:
    builder = Builder()
    builder.tensor("x", (1, 24, 24, 4), "int8", scale=0.05)
    builder.tensor("y", (1, 24, 24, 4), "int8", scale=0.05)
    builder.tensor("w", (4, 3, 3, 4), "int8", np.arange(144) - 70, scale=0.01)
    builder.operator("CONV_2D", ["x", "w", None], ["y"], padding="SAME")
    builder.tensor("z", (1, 24, 24, 3), "int8", scale=0.05)
    builder.tensor("pixel", (3, 1, 1, 4), "int8", np.arange(12) - 6, scale=0.01)
    builder.operator("CONV_2D", ["y", "pixel", None], ["z"], padding="SAME")
    builder.tensor("d", (1, 24, 24, 4), "int8", scale=0.05)
    builder.tensor("large", (1, 5, 5, 4), "int8", np.arange(100) - 50, scale=0.01)
    builder.operator("DEPTHWISE_CONV_2D", ["x", "large", None], ["d"], padding="SAME")
    builder.tensor("v", (1, 6), "int8", scale=0.05)
    builder.tensor("u", (1, 5), "int8", scale=0.05)
    builder.tensor("matrix", (5, 6), "int8", np.arange(30) - 15, scale=0.01)
    builder.operator("FULLY_CONNECTED", ["v", "matrix", None], ["u"])
    builder.tensor("two", (1, 2), "int8", scale=0.05)
    builder.tensor("rows", (2, 6), "int8", np.arange(12) - 6, scale=0.01)
    builder.operator("FULLY_CONNECTED", ["v", "rows", None], ["two"])
    model = from_tflite(builder.finish(["x", "v"], ["z", "d", "u", "two"]), "m")
    library = compile_model(model, target=Target(extensions=("dsp",)))
    sources = write_sources(library, tmp_path)
    text = "".join(path.read_text() for path in sources)
    helpers = ("winograd_strip", "dsp_tile", "dsp_dense", "dsp_few", "hold_words", "add_products")
    assert all(f" {name}(" in text for name in helpers)
    assert_explained(misra_counts(sources, [tmp_path]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extension", "goal", "width", "helpers"),
    [
        ("mve", "balance", 8, ("vector_lanes_1", "vector_depthwise_32_32_0_0", "vector_tiles")),
        pytest.param("mve", "speed", 8, ("vector_winograd_1_1_0_0",), marks=pytest.mark.nightly),
        ("plain", "balance", 2, ("depthwise_narrow", "depthwise_image", "dense_pairs", "dense_two")),
    ],
)
def test_kernels_break_only_rules_with_a_reason(
    extension: str, goal: Goal, width: int, helpers: tuple[str, ...], tmp_path: Path
) -> None:
    """The forms of MVE and of NEON are in the same file."""
    builder = Builder()
    for name, depth in (("x", 8), ("y", 8), ("z", 3), ("d", 8), ("e", 8)):
        builder.tensor(name, (1, 8, width, depth), "int8", scale=0.05, zero_point=-128 if name == "d" else 0)
    builder.tensor("v", (1, 6), "int8", scale=0.05)
    for outputs in (12, 2):
        builder.tensor(f"u{outputs}", (1, outputs), "int8", scale=0.05)
        builder.tensor(f"w{outputs}", (outputs, 6), "int8", np.arange(6 * outputs) - 30, scale=0.01)
        builder.operator("FULLY_CONNECTED", ["v", f"w{outputs}", None], [f"u{outputs}"])
    for name, shape in (("w", (8, 3, 3, 8)), ("pixel", (3, 1, 1, 8)), ("small", (1, 3, 3, 8)), ("large", (1, 5, 5, 8))):
        builder.tensor(name, shape, "int8", np.arange(np.prod(shape)) % 127 - 60, scale=0.01)
    builder.operator("CONV_2D", ["x", "w", None], ["y"], padding="SAME")
    builder.operator("CONV_2D", ["y", "pixel", None], ["z"], padding="SAME")
    builder.operator("DEPTHWISE_CONV_2D", ["x", "small", None], ["d"], padding="SAME")
    builder.operator("DEPTHWISE_CONV_2D", ["x", "large", None], ["e"], padding="SAME")
    model = from_tflite(builder.finish(["x", "v"], ["z", "d", "e", "u12", "u2"]), "m")
    library = compile_model(model, target=Target(extensions=(extension,), goal=goal))
    sources = write_sources(library, tmp_path)
    text = "".join(path.read_text() for path in sources)
    assert all(f" {name}(" in text for name in helpers)
    assert_explained(misra_counts(sources, [tmp_path]))


@pytest.mark.slow
def test_broken_rule_is_named(tmp_path: Path) -> None:
    source = tmp_path / "wrong.c"
    source.write_text("int run(int x);\nint run(int x)\n{\n    return (int)sizeof(x++) + x;\n}\n")
    findings = misra_findings([source])
    assert findings["13.6"] == [f"{source}:4"]
    assert "13.6" in reasons().list_unexplained({"13.6": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wrong.c"], "cppcheck's own files are gone"


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "broken.c"
    source.write_text("int f( {\n")
    with pytest.raises(ToolchainError, match="cppcheck cannot read"):
        misra_counts([source])


def test_rule_without_a_reason_is_unexplained() -> None:
    known = Reasons(mandatory=("9.1",), left={"8.9": "because", "9.1": "no reason helps", "12.1": " "})
    assert known.list_unexplained({"8.9": 3, "9.1": 1, "12.1": 1, "20.4": 1}) == ["9.1", "12.1", "20.4"]


def test_reasons_follow_the_rules_order() -> None:
    known = reasons()
    numbers = [tuple(map(int, rule.split("."))) for rule in known.left]
    assert numbers == sorted(numbers)
    assert not known.left.keys() & set(known.mandatory)


def test_counts_are_summed_in_rule_order() -> None:
    assert list(total([{"12.1": 1, "8.9": 2}, {"8.9": 1, "2.2": 1}]).items()) == [("2.2", 1), ("8.9", 3), ("12.1", 1)]
