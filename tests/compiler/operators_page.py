# SPDX-License-Identifier: Apache-2.0
"""Write docs/operators.md from the lists of refusals: ``python tests/compiler/operators_page.py``."""

from pathlib import Path

import onnx_suite
import tflite_suite
import torch_suite
import yaml


def page() -> str:
    """Text of the page."""
    refused = yaml.safe_load((Path(__file__).parent / "onnx_refused.yaml").read_text(encoding="utf-8"))
    parts = (onnx_suite.page(refused), tflite_suite.page(tflite_suite.lists()), torch_suite.page(torch_suite.lists()))
    return "".join(parts)


if __name__ == "__main__":
    (Path(__file__).parents[2] / "docs" / "operators.md").write_text(page(), encoding="utf-8")
