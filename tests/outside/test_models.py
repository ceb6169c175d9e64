# SPDX-License-Identifier: Apache-2.0
"""Public models of the folder UTVM_MODELS are right or refused (docs/models.md)."""

import os
from pathlib import Path

import pytest

from tests.outside import models

FOLDER = Path(os.environ.get("UTVM_MODELS", "/nonexistent"))
FILES = sorted(path for path in FOLDER.glob("*/**/*") if path.suffix in (".tflite", ".onnx"))


@pytest.mark.nightly
@pytest.mark.skipif(not FILES, reason="UTVM_MODELS names no folder of models")
@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_public_model_is_right_or_refused(path: Path) -> None:
    assert models.judge_in_time(path).startswith(("right", "refused: ", "runs; "))


def test_page_counts_results_and_escapes_bars() -> None:
    rows = [("a.tflite", "0123", "right"), ("b.onnx", "4567", "refused: operators: A | B")]
    page = models.page([models.Collection("few", "https://example.org", rows)])
    assert "| all | 2 | 1 right, 1 refused |" in page
    assert "| b.onnx | `4567` | refused: operators: A \\| B |" in page
