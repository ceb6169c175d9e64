# SPDX-License-Identifier: Apache-2.0
"""The compile report agrees with the library, and its picture is to scale."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from utvm import boards
from utvm.boards.accelerators import assistant
from utvm.compiler import Library, Memory, Region, compile_model, load
from utvm.compiler.library import Leftover
from utvm.compiler.report import RuleCount, plan_svg, write_report
from utvm.errors import ConfigError
from utvm.paths import ROOT

DIGITS = Path(__file__).parents[2] / "models" / "digits" / "digits.onnx"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def digits() -> Library:
    return compile_model(load(DIGITS))


def test_json_equals_the_library(digits: Library, tmp_path: Path) -> None:
    json_path, _ = write_report(digits, tmp_path / "new" / "folder")
    content = json.loads(json_path.read_text())
    assert content["arena_bytes"] == digits.arena_bytes
    assert content["lower_bound_bytes"] == digits.lower_bound_bytes
    assert len(content["calls"]) == 5
    assert content["digest"] == digits.digest


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "br", "input"}:
            self.open.append(tag)
        for name, value in attrs:
            assert name not in {"src", "href"} or str(value).startswith("#"), f"{tag} needs another file: {value}"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_misra_findings_have_their_reasons(digits: Library, tmp_path: Path) -> None:
    rules = [RuleCount("8.14", 5, 0, "restrict is needed"), RuleCount("11.4", 0, 7, "registers have addresses")]
    json_path, html_path = write_report(digits, tmp_path, rules)
    assert [row["rule"] for row in json.loads(json_path.read_text())["misra"]] == ["8.14", "11.4"]
    page = html_path.read_text()
    assert "registers have addresses" in page
    assert "MISRA" not in write_report(digits, tmp_path)[1].read_text()


def test_page_is_complete_and_standalone(digits: Library, tmp_path: Path) -> None:
    strange = replace(digits, leftovers=(Leftover("exp <&>", "x", "no integer form"),))
    _, html_path = write_report(strange, tmp_path)
    page = _Tags()
    page.feed(html_path.read_text())
    assert page.open == []
    for text in ("exp <&>", "no integer form", "digits_max_pool2d1", f"{digits.arena_bytes:,}", "logits"):
        assert text in page.text


def test_picture_is_to_scale(digits: Library) -> None:
    picture = ET.fromstring(plan_svg(digits))
    arena = picture.find(f".//{SVG}rect[@class='room']")
    assert arena is not None
    width, height = float(arena.attrib["width"]), float(arena.attrib["height"])
    bars = picture.findall(f".//{SVG}g[@class='bar']")
    assert len(bars) == len(digits.blocks)
    for bar, block in zip(bars, digits.blocks, strict=True):
        title, rect = bar.find(f"{SVG}title"), bar.find(f"{SVG}rect")
        assert title is not None and rect is not None and title.text is not None
        assert title.text.startswith(f"{block.tensor} ({block.kind}): {block.size:,} B at {block.offset:,}, ")
        lifetime = (block.last - block.first + 1) / (len(digits.calls) + 2)
        assert float(rect.attrib["width"]) == pytest.approx(lifetime * width, abs=0.02)
        assert float(rect.attrib["height"]) == pytest.approx(
            max(block.size / digits.arena_bytes * height, 1.5), abs=0.02
        )
        bottom = height - float(rect.attrib["y"]) - float(rect.attrib["height"])
        assert bottom == pytest.approx(block.offset / digits.arena_bytes * height, abs=1.6)


def test_regions_have_pictures() -> None:
    memory = Memory((Region("fast", 5000), Region("slow")))
    pictures = plan_svg(compile_model(load(DIGITS), memory=memory))
    assert re.findall(r"bytes of (\w+)", pictures) == ["fast", "slow"]


def test_unwritable_folder_is_an_error(digits: Library, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="compile report cannot be written"):
        write_report(digits, tmp_path / "file")


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("digits_int8.tflite", {"conv1", "pool1", "conv2", "pool2"}),
        ("digits.onnx", {"relu1_out", "pool1_out", "relu2_out", "pool2_out"}),
    ],
)
def test_tensors_have_the_names_of_the_model(model: str, names: set[str]) -> None:
    library = compile_model(load(ROOT / "models" / "digits" / model))
    buffers = {block.tensor for block in library.blocks if block.kind == "buffer"}
    assert buffers >= names
    assert {name for call in library.calls for name in call.writes} >= names
    assert buffers == names


def _dense(name: str, source: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("MatMul", [source, f"{name}_w"], [f"{name}_product"]),
        helper.make_node("Relu", [f"{name}_product"], [name]),
    ]


def test_equal_fused_layers_have_own_names(tmp_path: Path) -> None:
    """One TVM function serves all of them; two layers read one tensor."""
    layers = {"first": "x", "left": "first", "right": "first", "after_left": "left"}
    nodes = [node for name, source in layers.items() for node in _dense(name, source)]
    nodes += [helper.make_node("Add", ["after_left", "right"], ["sum"]), helper.make_node("Softmax", ["sum"], ["y"])]
    generator = np.random.default_rng(1)
    weights = [
        numpy_helper.from_array(generator.normal(size=(8, 8)).astype(np.float32), f"{name}_w") for name in layers
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "alike", ends[:1], ends[1:], weights)
    path = tmp_path / "alike.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    library = compile_model(load(path))
    calls = [(set(call.reads), set(call.writes)) for call in library.calls[:4]]
    # The layer "right" is fused with the sum.
    assert calls == [
        ({"x"}, {"first"}),
        ({"first"}, {"left"}),
        ({"left"}, {"after_left"}),
        ({"first", "after_left"}, {"sum"}),
    ]
    assert len({call.function for call in library.calls[:3]}) == 1


def test_accelerator_parts_are_named_after_their_layer() -> None:
    board = boards.load("pynq-z1")
    model = load(ROOT / "models" / "digits" / "digits_int8.tflite")
    library = compile_model(model, target=board.target, assistant=assistant(board, "all"))
    names = [name for call in library.calls for name in call.writes]
    assert names[:4] == ["conv1 (1)", "conv1 (2)", "conv1", "pool1"]
    assert {decision.tensor for decision in library.decisions} == {"conv1", "conv2", "logits"}


def test_names_are_not_hidden_by_blocks() -> None:
    """Overlapping blocks with names longer than their visible part."""
    library = compile_model(load(DIGITS.with_name("digits_int8.tflite")))
    renamed = tuple(replace(block, tensor=f"{block.tensor}_with_a_long_name") for block in library.blocks)
    picture = ET.fromstring(plan_svg(replace(library, blocks=renamed)))
    bars = picture.findall(f".//{SVG}g[@class='bar']")
    rectangles = [{k: float(v) for k, v in bar[1].attrib.items() if k != "class"} for bar in bars]
    shown = 0
    for number, bar in enumerate(bars):
        if (text := bar.find(f"{SVG}text")) is None:
            continue
        shown += 1
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        assert text.text is not None
        for rectangle in rectangles[number + 1 :]:
            overlaps = rectangle["y"] < y and rectangle["y"] + rectangle["height"] > y - 8
            beside = rectangle["x"] >= x + 6 * len(text.text) or rectangle["x"] + rectangle["width"] <= x
            assert beside or not overlaps, text.text
    assert shown > 2


def test_too_long_name_is_replaced_by_its_step() -> None:
    library = compile_model(load(DIGITS))
    renamed = tuple(replace(block, tensor="n" * 200) for block in library.blocks)
    bars = ET.fromstring(plan_svg(replace(library, blocks=renamed))).findall(f".//{SVG}g[@class='bar']")
    labels = [None if (text := bar.find(f"{SVG}text")) is None else text.text for bar in bars]
    assert any(labels)
    for label, block in zip(labels, library.blocks, strict=True):
        assert label is None or label == str(block.first) or block.first < 0
