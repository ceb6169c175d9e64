# SPDX-License-Identifier: Apache-2.0
"""model.compare: models on boards as a table and a picture, with a row for a model that does not fit."""

import json
import re
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.running import inv
from utvm.paths import ROOT
from utvm.session.evaluation import Row, draw

DIGITS = ROOT / "models" / "digits"
_FAR = "/home/somebody/a/board/far/away:x=1"


def _too_large(path: Path) -> Path:
    """Write a model with the input and output of digits, and weights larger than a small flash."""
    layers = {"w": np.zeros((64, 1000), np.float32), "v": np.zeros((1000, 10), np.float32)}
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "v"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(values, name) for name, values in layers.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


@pytest.mark.slow
def test_table_and_picture_of_models_and_boards(tmp_path: Path) -> None:
    samples = tmp_path / "few.npz"
    with np.load(DIGITS / "samples.npz") as known:
        np.savez(samples, x=known["x"][:3], labels=known["labels"][:3])
    words = [DIGITS / "digits.onnx", _too_large(tmp_path / "large.onnx"), "--boards", "microbit,host,mps2-an385"]
    picture, results = tmp_path / "picture.svg", tmp_path / "results.json"
    words += ["--inputs", samples, "--labels", samples, "-o", picture, "-j", results]
    completed = inv("model.compare", *words, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    rows = {(Path(row["model"]).stem, row["board"]): row for row in json.loads(results.read_text())}
    small, host, large = rows["digits", "microbit"], rows["digits", "host"], rows["large", "microbit"]
    assert small["unit"] == "instructions" and small["flash_bytes"] > 20_000 and small["ram_bytes"] > 1000
    assert small["accuracy"] == host["accuracy"] == 1.0
    assert host["flash_bytes"] is None
    assert "more than" in large["why"] or "not fit" in large["why"] or "larger" in large["why"]
    assert "does not fit" in completed.stdout
    text = picture.read_text()
    assert f"{small['count']:,}" in text and "instructions of one run" in text
    xml.etree.ElementTree.fromstring(text)
    layers = picture.with_suffix(".html").read_text()
    assert re.findall("<h2>(.*)</h2>", layers) == [
        "digits.onnx on microbit",
        "digits.onnx on host",
        "digits.onnx on mps2-an385",
        "large.onnx on host",
        "large.onnx on mps2-an385",
    ]
    assert f"one run: {small['count']:,} instructions" in layers
    # Costs are measured, step by step, where the firmware for it fits.
    views = [json.loads(text) for text in re.findall('<script type="application/json">(.*)</script>', layers)]
    assert [view["unit"] for view in views] == ["MACs", "ns", "instructions", "ns", "instructions"]
    assert re.search(r"instructions; steps are not measured: .* does not fit", layers)
    assert sum(views[2]["columns"]["cost"]) == pytest.approx(rows["digits", "mps2-an385"]["count"], rel=0.01)


def test_bars_are_proportional_and_names_are_escaped() -> None:
    rows = [Row("<b>&", "one", 50, "instructions", 10, 5), Row("other", _FAR, 100, "instructions", 10, 5)]
    far = "/home/somebody/with/boards" + _FAR
    rows.append(Row("other", far, 0, flash_bytes=10, ram_bytes=5))
    drawn = xml.etree.ElementTree.fromstring(draw(rows))
    bars = [element for element in drawn.iter("{http://www.w3.org/2000/svg}rect") if element.get("height") == "9"]
    assert [float(element.attrib["width"]) for element in bars] == [190, 380, *[380] * 6]
    assert "<b>&" in "".join(drawn.itertext())
    # The label above a bar has 380 units with its figure; the tool tip has the complete name.
    labels = [
        str(element.text) for element in drawn.iter("{http://www.w3.org/2000/svg}text") if element.get("x") == "10"
    ]
    assert _FAR in labels and f"…{far[-35:]}" in labels
    assert _FAR in "".join(drawn.itertext())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "model.compare needs MODELS"),
        ([DIGITS / "digits.onnx"], "--boards is missing"),
        ([DIGITS / "digits.onnx", "--boards", "host,nowhere"], "there is no board 'nowhere'"),
    ],
)
def test_usage_error_is_one_message(words: list[object], message: str, tmp_path: Path) -> None:
    completed = inv("model.compare", *words, cwd=tmp_path)
    assert completed.returncode == 2
    assert message in completed.stderr
    assert list(tmp_path.iterdir()) == []
