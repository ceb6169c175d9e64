# SPDX-License-Identifier: Apache-2.0
"""Regressions that random models revealed, each as a model of one operator, against ONNX's evaluator."""

from pathlib import Path

import numpy as np
import onnx.parser
import onnx_suite
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_suite import Case

RANDOM = np.random.default_rng(16)
X = RANDOM.normal(0, 2, (2, 3, 4)).astype(np.float32)
IMAGE = RANDOM.normal(0, 2, (1, 1, 6, 7)).astype(np.float32)
EDGES = np.array([[np.nan, -2, 9, -np.inf], [np.inf, 3e38, 1, -0.5]], np.float32)
WHOLE = RANDOM.integers(0, 9, (2, 3, 4))

# Version, signature, operator, inputs.
REGRESSIONS = {
    "scattered_rows_fewer_than_there_are": (
        18, "(float[2,3,4] x, int64[1,2,2] i, float[1,2,2] u) => (float[2,3,4] y)",
        "y = ScatterElements <axis = 2> (x, i, u)", [X, np.array([[[3, 0], [-1, 1]]]), X[:1, :2, :2]],
    ),
    "corners_of_regions_that_are_scaled": (
        16, "(float[1,1,6,7] x, float[1,4] r, int64[1] b) => (float[1,1,2,2] y)",
        "y = RoiAlign <output_height = 2, output_width = 2, sampling_ratio = 2, spatial_scale = 0.5> (x, r, b)",
        [IMAGE, np.array([[1, 2, 9, 8]], np.float32), np.array([0])],
    ),
    "no_axes_for_l2": (
        18, "(float[2,3,4] x) => (float[2,3,4] y)", "y = ReduceL2 <noop_with_empty_axes = 1> (x)", [X],
    ),
    "no_axes_for_a_sum_of_squares": (
        18, "(float[2,3,4] x) => (float[2,3,4] y)", "y = ReduceSumSquare <noop_with_empty_axes = 1> (x)", [X],
    ),
    "a_mean_of_integers": (
        13, "(int32[2,3,4] x) => (int32[2,3] y)", "y = ReduceMean <axes = [2], keepdims = 0> (x)",
        [WHOLE.astype(np.int32)],
    ),
    "the_sign_of_what_is_no_number": (
        13, "(float[3] x) => (float[3] y)", "y = Sign (x)", [np.array([np.nan, -0.5, 0], np.float32)],
    ),
    "the_sign_of_unsigned_numbers": (
        13, "(uint8[2,3,4] x) => (uint8[2,3,4] y)", "y = Sign (x)", [WHOLE.astype(np.uint8)],
    ),
    "a_definition_from_an_earlier_version": (
        20, "(float[2,3,4] x) => (float[2,3,4] y)", "y = Celu <alpha = 0.5> (x)", [X],
    ),
    "a_slice_by_attributes": (
        9, "(float[2,3,4] x) => (float[2,2,3] y)",
        "y = Slice <axes = [1, 2], starts = [1, 0], ends = [9, -1]> (x)", [X],
    ),
    "no_region_that_is_a_node": (
        11, "(float[1,1,6,7] x) => (float[1,1,12,14] y)",
        "r = Constant <value = float[0] {}> () s = Constant <value = float[4] {1, 1, 2, 2}> ()"
        'y = Resize <mode = "linear"> (x, r, s)', [IMAGE],
    ),
    "a_scale_of_a_row_for_the_whole": (
        17, "(float[2,3,4] x, float[4] s) => (float[2,3,4] y)", "y = LayerNormalization <axis = 1> (x, s)",
        [X, X[0, 0]],
    ),
    "a_comparison_with_the_end_of_a_type": (
        13, "(uint32[2,3,4] x) => (bool[2,3,4] y)", "c = Constant <value = uint32 {0}> () y = Less (x, c)",
        [WHOLE.astype(np.uint32)],
    ),
    "shrinking_integers": (
        13, "(int8[2,3,4] x) => (int8[2,3,4] y)", "y = Shrink <bias = 1.4, lambd = 2.5> (x)",
        [WHOLE.astype(np.int8)],
    ),
    "a_number_to_pad_with_from_an_input": (
        18, "(float[2,3,4] x, float v) => (float[2,3,6] y)",
        "p = Constant <value = int64[6] {0, 0, 1, 0, 0, 1}> () y = Pad (x, p, v)", [X, np.float32(7)],
    ),
    "an_even_number_of_channels": (
        13, "(float[1,1,6,7] x) => (float[1,1,6,7] y)", "y = LRN <size = 2, alpha = 0.5> (x)", [IMAGE],
    ),
    **{
        f"what_is_no_number_through_{operator.split()[0].lower()}": (
            20, "(float[2,4] x) => (float[2,4] y)",
            "l = Constant <value = float {0}> () h = Constant <value = float {6}> () "
            f"y = {operator}", [EDGES],
        )
        for operator in (
            "Relu (x)", "Clip (x, l, h)", "Max (x, l)", "Elu (x)", "Selu (x)", "HardSigmoid (x)",
            "ThresholdedRelu (x)", "Celu <alpha = 0.5> (x)", "Min (x, l, h)",
        )
    },
    "no_number_as_the_second_of_two": (
        13, "(float[2,4] x, float[4] c) => (float[2,4] y)", "y = Max (c, x)", [EDGES, X[0, 0]],
    ),
    **{
        f"no_number_along_an_axis_of_{operator}": (
            18, "(float[2,4] x) => (float[2] y)",
            f"a = Constant <value = int64[1] {{1}}> () y = {operator} <keepdims = 0> (x, a)", [EDGES],
        )
        for operator in ("ReduceMax", "ReduceMin")
    },
    "infinities_in_a_sum_of_exponents": (
        13, "(float[2,4] x) => (float[1,4] y)", "y = ReduceLogSumExp <axes = [0]> (x)",
        [np.array([[np.inf, -np.inf, 1, 88], [2, -1, np.inf, 90]], np.float32)],
    ),
    "a_slope_of_one_number": (16, "(float x, float s) => (float y)", "y = PRelu (x, s)", [X[0, 0, 0], X[0, 0, 1]]),
    "branches_that_say_no_type": (
        13, "(float[2,3,4] x) => (float[2,3,4] y)",
        "c = Constant <value = bool {0}> () y = If (c) <then_branch = a () => (t) {t = Neg (x)}, "
        "else_branch = b () => (e) {e = Add (x, x)}>", [X],
    ),
    "one_number_of_a_row": (
        13, "(float[9] x) => (float y)", "y = ReduceSum <keepdims = 0> (x)", [X[0].ravel()[:9]],
    ),
    "float64": (13, "(double[2,3,4] x) => (double[2,3,4] y)", "y = Selu (x)", [X.astype(np.float64)]),
}  # fmt: skip


def _case(name: str, version: int, text: str, inputs: list[np.ndarray], same_as: str = "") -> Case:
    """A case; its outputs may be those of another text that the evaluator supports."""
    header = f'<ir_version: 8, opset_import: ["" : {version}]> {name} '
    model, evaluated = (onnx.parser.parse_model(header + body) for body in (text, same_as or text))
    feeds = dict(zip([input_info.name for input_info in model.graph.input], inputs, strict=True))
    with np.errstate(all="ignore"):
        expected = [np.asarray(output) for output in ReferenceEvaluator(evaluated).run(None, feeds)]
    return Case(name, model, [(list(feeds.values()), expected)], 1e-4, 1e-5)


@pytest.mark.slow
def test_regressions_are_fixed(tmp_path: Path) -> None:
    cases = [
        _case(name, version, f"{signature} {{ {nodes} }}", inputs)
        for name, (version, signature, nodes, inputs) in REGRESSIONS.items()
    ]
    window = "kernel_shape = [2, 2], strides = [1, 2]"
    pool = f"(float[1,1,6,7] x) => (float[1,1,6,4] y) {{ y = MaxPool <PADS, {window}> (x) }}"
    named, numbers = 'auto_pad = "SAME_LOWER"', "pads = [1, 1, 0, 0]"
    cases.append(_case("lower", 20, pool.replace("PADS", named), [IMAGE], pool.replace("PADS", numbers)))
    outcomes = onnx_suite.judge(cases, tmp_path).values()
    assert not [outcome for outcome in outcomes if outcome.verdict != "right"]
