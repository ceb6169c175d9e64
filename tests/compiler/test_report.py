# SPDX-License-Identifier: Apache-2.0
"""The compile report: what it says is what the library is, and its picture is to scale."""

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


def test_the_json_says_what_the_library_is(digits: Library, tmp_path: Path) -> None:
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
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        for name, value in attrs:
            assert name not in {"src", "href"} or value == "#main", f"{tag} needs another file: {value}"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_misra_findings_are_shown_with_their_reasons(digits: Library, tmp_path: Path) -> None:
    rules = [RuleCount("8.14", 5, 0, "restrict is needed"), RuleCount("11.4", 0, 7, "registers have addresses")]
    json_path, html_path = write_report(digits, tmp_path, rules)
    assert [each["rule"] for each in json.loads(json_path.read_text())["misra"]] == ["8.14", "11.4"]
    page = html_path.read_text()
    assert "registers have addresses" in page
    assert "MISRA" not in write_report(digits, tmp_path)[1].read_text()


def test_the_page_is_whole_and_needs_no_other_file(digits: Library, tmp_path: Path) -> None:
    strange = replace(digits, leftovers=(Leftover("exp <&>", "x", "no integer form"),))
    _, html_path = write_report(strange, tmp_path)
    page = _Tags()
    page.feed(html_path.read_text())
    assert page.open == []
    for said in ("exp <&>", "no integer form", "digits_max_pool2d1", f"{digits.arena_bytes:,}", "logits"):
        assert said in page.words


def test_the_picture_is_to_scale(digits: Library) -> None:
    picture = ET.fromstring(plan_svg(digits))
    room = picture.find(f".//{SVG}rect[@class='room']")
    assert room is not None
    width, height = float(room.attrib["width"]), float(room.attrib["height"])
    bars = picture.findall(f".//{SVG}g[@class='bar']")
    assert len(bars) == len(digits.blocks)
    for bar, block in zip(bars, digits.blocks, strict=True):
        title, rect = bar.find(f"{SVG}title"), bar.find(f"{SVG}rect")
        assert title is not None and rect is not None and title.text is not None
        assert title.text.startswith(f"{block.tensor} ({block.kind}): {block.size:,} B at {block.offset:,}, ")
        lives = (block.last - block.first + 1) / (len(digits.calls) + 2)
        assert float(rect.attrib["width"]) == pytest.approx(lives * width, abs=0.02)
        assert float(rect.attrib["height"]) == pytest.approx(
            max(block.size / digits.arena_bytes * height, 1.5), abs=0.02
        )
        bottom = height - float(rect.attrib["y"]) - float(rect.attrib["height"])
        assert bottom == pytest.approx(block.offset / digits.arena_bytes * height, abs=1.6)


def test_each_region_has_its_picture() -> None:
    memory = Memory((Region("fast", 5000), Region("slow")))
    pictures = plan_svg(compile_model(load(DIGITS), memory=memory))
    assert re.findall(r"bytes of (\w+)", pictures) == ["fast", "slow"]


def test_a_directory_that_cannot_be_written_is_an_error(digits: Library, tmp_path: Path) -> None:
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
def test_what_layers_make_is_called_as_the_model_calls_it(model: str, names: set[str]) -> None:
    library = compile_model(load(ROOT / "models" / "digits" / model))
    made = {block.tensor for block in library.blocks if block.kind == "buffer"}
    assert made >= names
    assert {name for call in library.calls for name in call.writes} >= names
    assert made == names


def _dense(name: str, given: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("MatMul", [given, f"{name}_w"], [f"{name}_product"]),
        helper.make_node("Relu", [f"{name}_product"], [name]),
    ]


def test_fused_layers_that_are_alike_keep_each_its_own_name(tmp_path: Path) -> None:
    """One function of TVM's is called for all of them; what two layers read goes two ways."""
    layers = {"first": "x", "left": "first", "right": "first", "after_left": "left"}
    nodes = [node for name, given in layers.items() for node in _dense(name, given)]
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
    made = [(set(call.reads), set(call.writes)) for call in library.calls[:4]]
    # That to the right is fused with the sum.
    assert made == [
        ({"x"}, {"first"}),
        ({"first"}, {"left"}),
        ({"left"}, {"after_left"}),
        ({"first", "after_left"}, {"sum"}),
    ]
    assert len({call.function for call in library.calls[:3]}) == 1


def test_parts_on_an_accelerator_are_called_after_their_layer() -> None:
    board = boards.load("pynq-z1")
    model = load(ROOT / "models" / "digits" / "digits_int8.tflite")
    library = compile_model(model, target=board.target, assistant=assistant(board, "all"))
    made = [name for call in library.calls for name in call.writes]
    assert made[:4] == ["conv1 (1)", "conv1 (2)", "conv1", "pool1"]
    assert {each.tensor for each in library.decisions} == {"conv1", "conv2", "logits"}


def test_no_name_in_the_picture_is_under_another_block() -> None:
    """Of blocks that lie over one another, with names that are longer than what is seen of them."""
    library = compile_model(load(DIGITS.with_name("digits_int8.tflite")))
    long = tuple(replace(block, tensor=f"{block.tensor}_with_a_long_name") for block in library.blocks)
    picture = ET.fromstring(plan_svg(replace(library, blocks=long)))
    bars = picture.findall(f".//{SVG}g[@class='bar']")
    places = [{k: float(v) for k, v in bar[1].attrib.items() if k != "class"} for bar in bars]
    shown = 0
    for number, bar in enumerate(bars):
        if (text := bar.find(f"{SVG}text")) is None:
            continue
        shown += 1
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        assert text.text is not None
        for other in places[number + 1 :]:
            over = other["y"] < y and other["y"] + other["height"] > y - 8
            beside = other["x"] >= x + 6 * len(text.text) or other["x"] + other["width"] <= x
            assert beside or not over, text.text
    assert shown > 2


def test_a_name_that_has_no_room_is_the_step_that_writes_it() -> None:
    library = compile_model(load(DIGITS))
    long = tuple(replace(block, tensor="n" * 200) for block in library.blocks)
    bars = ET.fromstring(plan_svg(replace(library, blocks=long))).findall(f".//{SVG}g[@class='bar']")
    shown = [None if (text := bar.find(f"{SVG}text")) is None else text.text for bar in bars]
    assert any(shown)
    for label, block in zip(shown, library.blocks, strict=True):
        assert label is None or label == str(block.first) or block.first < 0
