# SPDX-License-Identifier: Apache-2.0
"""Models of scikit-learn (ai.onnx.ml): trees and linear models, against ONNX's evaluator."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from host_library import HostLibrary
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.portions import by_day
from utvm.compiler import compile_model, from_onnx
from utvm.errors import CompileError

RANDOM = np.random.default_rng(16)
FEATURES, ROWS = 4, 9
Array = np.ndarray[Any, Any]


def _model(nodes: Sequence[onnx.NodeProto], results: dict[str, int]) -> onnx.ModelProto:
    shapes = {"label": [ROWS], "scores": [ROWS, None]}
    kinds = {name: helper.make_tensor_value_info(name, kind, shapes[name]) for name, kind in results.items()}
    rows = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [ROWS, FEATURES])
    graph = helper.make_graph(list(nodes), "m", [rows], list(kinds.values()))
    # Some exporters list ONNX's own operator set twice.
    sets = [helper.make_opsetid(domain, version) for domain, version in (("ai.onnx.ml", 1), ("", 18), ("", 18))]
    return helper.make_model(graph, opset_imports=sets)


def ml_node(operator: str, outputs: Sequence[str], input_name: str = "x", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, [input_name], list(outputs), domain="ai.onnx.ml", **attributes)


def _trees(count: int, depth: int, mode: str, kind: str, results: int, lowest: float) -> dict[str, Any]:
    """Random trees; some branches end early."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "hitrates")
    }
    leaves: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree: int, level: int) -> int:
        number = columns["treeids"].count(tree)
        leaf = level == depth or (level > 0 and RANDOM.random() < 0.3)
        index = len(columns["treeids"])
        row = (tree, number, int(RANDOM.integers(FEATURES)), float(np.float32(RANDOM.normal())), mode, 0, 0, 1.0)
        for name, value in zip(columns, row, strict=True):
            columns[name].append("LEAF" if leaf and name == "modes" else value)
        if leaf:
            for result in range(results):
                leaf_row = (tree, number, result, float(np.float32(RANDOM.uniform(lowest, 1))))
                for name, value in zip(leaves, leaf_row, strict=True):
                    leaves[name].append(value)
        else:
            columns["truenodeids"][index] = grow(tree, level + 1)
            columns["falsenodeids"][index] = grow(tree, level + 1)
        return number

    for tree in range(count):
        grow(tree, 0)
    return {f"nodes_{name}": values for name, values in columns.items()} | {
        f"{kind}_{name}": values for name, values in leaves.items()
    }


def _classifier(count: int, labels: Sequence[int], results: int = 0, mode: str = "BRANCH_LEQ", **options: Any) -> Any:
    lowest = options.pop("lowest", -1.0)
    trees = _trees(count, 4, mode, "class", results or len(labels), lowest)
    options |= {"classlabels_int64s": list(labels)} if labels else {}
    return ml_node("TreeEnsembleClassifier", ["label", "scores"], **trees, **options)


def _regressor(count: int, targets: int, mode: str = "BRANCH_LEQ", **options: Any) -> Any:
    trees = _trees(count, 4, mode, "target", targets, -1.0)
    return ml_node("TreeEnsembleRegressor", ["scores"], n_targets=targets, **trees, **options)


def _linear(**options: Any) -> Any:
    coefficients = [float(value) for value in RANDOM.normal(0, 1, 3 * FEATURES)]
    intercepts = [float(value) for value in RANDOM.normal(0, 1, 3)]
    numbers = {"classlabels_ints": [4, 2, 9], "coefficients": coefficients, "intercepts": intercepts}
    return ml_node("LinearClassifier", ["label", "scores"], **numbers, **options)


BOTH = {"label": onnx.TensorProto.INT64, "scores": onnx.TensorProto.FLOAT}
ONE = {"scores": onnx.TensorProto.FLOAT}
PREPARED = [0.5, -0.25, 1.0, 0.0]

CASES: dict[str, tuple[list[onnx.NodeProto], dict[str, int]]] = {
    "forest": ([_classifier(7, [0, 1, 2])], BOTH),
    "forest of other labels": ([_classifier(3, [7, -2, 5], post_transform="SOFTMAX")], BOTH),
    "boosted, two classes": ([_classifier(5, [3, 8], 1, post_transform="LOGISTIC")], BOTH),
    "shares, two classes": ([_classifier(1, [3, 8], 1, lowest=0.0)], BOTH),
    "base values": ([_classifier(4, [0, 1, 2], base_values=[0.25, -0.5, 0.0])], BOTH),
    "regressor": ([_regressor(6, 1, base_values=[1.5])], ONE),
    "targets": ([_regressor(3, 2)], ONE),
    "average": ([_regressor(3, 1, aggregate_function="AVERAGE")], ONE),
    **{mode: ([_regressor(2, 1, mode)], ONE) for mode in ("BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")},
    "linear": ([_linear(post_transform="SOFTMAX")], BOTH),
    "linear regressor": (
        [ml_node("LinearRegressor", ["scores"], coefficients=[1.0, -2.0, 0.5, 3.0], intercepts=[0.25])],
        ONE,
    ),
    "prepared": (
        [
            ml_node("Scaler", ["s"], offset=PREPARED, scale=[2.0, 1.0, 0.5, 4.0]),
            ml_node("Normalizer", ["scores"], "s", norm="L2"),
        ],
        ONE,
    ),
    "L1": ([ml_node("Normalizer", ["scores"], norm="L1")], ONE),
}


def _rows() -> Array:
    """Random inputs; some are exactly at a threshold, and one is all zeros."""
    rows = RANDOM.normal(0, 1, (ROWS, FEATURES)).astype(np.float32)
    rows[0] = 0
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", by_day(CASES, "forest of other labels", "boosted, two classes", "targets", "average", "prepared")
)
def test_results_equal_onnxs_evaluator(name: str, tmp_path: Path) -> None:
    nodes, results = CASES[name]
    model, rows = _model(nodes, results), _rows()
    thresholds = [
        attribute.floats for node in nodes for attribute in node.attribute if attribute.name == "nodes_values"
    ]
    for index, value in enumerate(thresholds[0][: ROWS - 1] if thresholds else ()):
        rows[index + 1, :] = value
    expected = ReferenceEvaluator(model).run(None, {"x": rows})
    outputs = HostLibrary(compile_model(from_onnx(model.SerializeToString(), "m")), tmp_path)(rows)
    for output, golden in zip(outputs, expected, strict=True):
        assert output.dtype == golden.dtype
        np.testing.assert_allclose(output, golden.reshape(output.shape), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (_classifier(1, [], 1, classlabels_strings=["a", "b"]), "elements of type string, which is not supported"),
        (_classifier(1, [0, 1], base_values=[0.5, 1.0]), "base values of both of two classes are not supported"),
        (ml_node("Normalizer", ["scores"], norm="MAX"), "the norm MAX is not supported"),
        (_classifier(1, [0, 1], post_transform="PROBIT"), "the transformation PROBIT is not supported"),
        (_regressor(1, 1, "BRANCH_NEQ"), "branches of the kinds BRANCH_NEQ are not supported"),
        (_regressor(1, 1, aggregate_function="MIN"), "the aggregate function MIN is not supported"),
        (_regressor(1, 1, nodes_missing_value_tracks_true=[1]), "a branch of its own for missing values"),
    ],
)
def test_unsupported_attribute_is_named(node: onnx.NodeProto, text: str) -> None:
    results = BOTH if len(node.output) == 2 else ONE
    if any(attribute.name == "classlabels_strings" for attribute in node.attribute):
        results = BOTH | {"label": onnx.TensorProto.STRING}
    with pytest.raises(CompileError, match=text):
        compile_model(from_onnx(_model([node], results).SerializeToString(), "m"))
