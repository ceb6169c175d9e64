# SPDX-License-Identifier: Apache-2.0
"""The guide for Python programs: its examples, run as they stand, and what they do not show."""

import doctest

import numpy as np
import pytest

import utvm
from utvm import compiler
from utvm.errors import ProbeError
from utvm.paths import DATA, ROOT

pytestmark = pytest.mark.slow

_DIGITS = DATA / "models" / "digits" / "digits.onnx"


def test_the_guide_s_examples_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False)
    assert (failed, tried > 10) == (0, True)


def test_models_alternate_and_a_closed_board_is_an_error() -> None:
    sample = np.zeros((1, 1, 8, 8), np.float32)
    library = compiler.compile_model(compiler.load(_DIGITS), name="plain")
    with utvm.open("host") as board:
        first, second = board.load(_DIGITS), board.load(library)
        assert second.library is library
        runs = [model.run(sample) for model in (first, second, first)]
        assert len({run.outputs[0].tobytes() for run in runs}) == 1
        assert first.profile(sample).unit == "ns"
        with pytest.raises(ProbeError, match="has no debug port"):
            board.memory.read(0, 4)
    with pytest.raises(ProbeError, match="not attached"):
        first.run(sample)
