# SPDX-License-Identifier: Apache-2.0
"""benchmarks/README.md has no figures of its own, but those that the benchmarks have written."""

import json
import re

import pytest
import tflite
import yaml

from benchmarks import layers, mcunet, seen, silicon


def test_page_has_the_measured_figures() -> None:
    assert seen.PAGE.read_text(encoding="utf-8") == seen.page(), "run .venv/bin/python -m benchmarks.seen"


def test_benchmarks_with_figures_are_on_the_page() -> None:
    names = set()
    for path in seen.PAGE.parent.glob("*.py"):
        if match := re.search(r"seen\.keep\(\s*\"(\w+)\"", path.read_text(encoding="utf-8")):
            assert match[1] == path.stem
            names.add(match[1])
            assert f"| `{path.name}` |" in seen.page()
    assert names == {path.stem for path in seen.FOLDER.glob("*.json")}


def test_digits_figures_equal_the_boards() -> None:
    digits = json.loads((seen.FOLDER / "digits.json").read_text())["figures"]
    models = json.loads((seen.PAGE.parent / "boards.json").read_text())["boards"]["stm32f746"]["models"]
    by_name = {model["name"]: model["figures"] for model in models}
    for measured, expected in ((digits["float"], by_name["digits"]), (digits["int8"], by_name["digits_int8"])):
        assert measured == {name: expected[name] for name in measured}


def test_errors_of_the_cycle_model_are_on_its_page() -> None:
    rows = json.loads((seen.FOLDER / "silicon.json").read_text())["figures"]["rows"]
    assert silicon.table_of(rows) in silicon.PAGE.read_text(encoding="utf-8")
    assert silicon.picture_of(rows) == silicon.PICTURE.read_text(encoding="utf-8")
    assert all(silicon.is_within(name, rows) for name in silicon.BOUNDS)


def _size_of(content: bytes) -> tuple[int, int]:
    """Return the products of a network of convolutions, and its weights with two numbers a channel."""
    graph = tflite.Model.GetRootAs(content).Subgraphs(0)
    products, parameters = 0, 0
    for number in range(graph.OperatorsLength()):
        operator = graph.Operators(number)
        if operator.InputsLength() < 3:
            continue
        _, weights, bias = (graph.Tensors(operator.Inputs(place)).ShapeAsNumpy() for place in range(3))
        _, height, width, _ = graph.Tensors(operator.Outputs(0)).ShapeAsNumpy()
        products += int(height * width * weights.prod())
        parameters += int(weights.prod() + 2 * bias.prod())
    return products, parameters


_NETWORKS = yaml.safe_load(mcunet.DATA.read_text(encoding="utf-8"))["networks"]


@pytest.mark.parametrize("name", _NETWORKS)
def test_networks_of_mcunet_have_the_published_size(name: str) -> None:
    """Parameters: the published ones have a bias for each class, and no other number."""
    network, published = _NETWORKS[name], _NETWORKS[name]["published"]
    products, parameters = _size_of(mcunet.content_of(network | {"resolution": published["resolution"]}))
    assert products / 1e6 == pytest.approx(published["mmacs"], abs=0.05)
    assert (parameters - network["classes"]) / 1e6 == pytest.approx(published["mparameters"], abs=0.005)


@pytest.mark.nightly
@pytest.mark.parametrize("core", ["Cortex-M7", "Cortex-M55", "Cortex-M3"])
def test_layers_take_no_more_instructions_than_before(core: str) -> None:
    """Each output is compared with TFLite Micro's; a percent is for the compiler's version."""
    data = yaml.safe_load(layers.FILE.read_text(encoding="utf-8"))
    (row,) = (row for row in layers.CORES if row.name == core)
    counts = layers.measure(row, [layer["layer"] for layer in data["layers"]])
    known = json.loads((seen.FOLDER / "layers.json").read_text())["figures"][core]
    others = [layer["cmsis_nn"][data["cores"].index(core)] for layer in data["layers"]]
    longer = [count / other > 1.01 * ratio + 0.01 for count, other, ratio in zip(counts, others, known, strict=True)]
    assert not any(longer)
