# SPDX-License-Identifier: Apache-2.0
"""An int8 operator is one file: CONTRIBUTING.md's example is compiled, without any other change."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from host_library import HostLibrary

from hil_tests.int8_cases import Quantised, operator_model
from utvm.compiler import ANY, from_tflite, kernels
from utvm.compiler.build import build_library
from utvm.errors import CompileError
from utvm.paths import ROOT

_SHAPE = (1, 4, 5, 3)
_SAME = Quantised(_SHAPE, 0.05, 3)
_OUTPUT = Quantised(_SHAPE, 0.05, -100)


@pytest.fixture
def operator_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    examples = re.findall(r"^```python\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL | re.MULTILINE)
    (text,) = (example for example in examples if "KERNEL = " in example)
    (tmp_path / "distance.py").write_text(text)
    # The package's path is extended: other tests read the checkout at the same time.
    monkeypatch.setattr(kernels, "__path__", [*kernels.__path__, str(tmp_path)])
    yield
    sys.modules.pop(f"{kernels.__name__}.distance", None)
    vars(kernels).pop("distance", None)


def model(second: Quantised = _SAME) -> bytes:
    return operator_model("AbsoluteDifference", [_SAME, second], _OUTPUT)


def test_operator_is_unsupported_without_its_file() -> None:
    with pytest.raises(CompileError, match=r"operators that are not supported: AbsoluteDifference \(at y\)"):
        from_tflite(model(), "distance")


@pytest.mark.usefixtures("operator_file")
def test_operator_in_one_file_is_computed(tmp_path: Path) -> None:
    library = build_library(from_tflite(model(), "distance"), "distance", ANY)
    assert [call.kind for call in library.calls] == ["distance_int8"]
    assert not library.leftovers
    run = HostLibrary(library, tmp_path)
    generator = np.random.default_rng(4)
    for _ in range(3):
        a, b = (generator.integers(-128, 128, _SHAPE, np.int8) for _ in range(2))
        golden = np.clip(np.abs(a.astype(int) - b.astype(int)) - 100, -128, 127).astype(np.int8)
        np.testing.assert_array_equal(run(a, b)[0], golden)


@pytest.mark.usefixtures("operator_file")
def test_unsuitable_case_stays_in_float_with_reason() -> None:
    content = model(Quantised(_SHAPE, 0.1, 3))
    library = build_library(from_tflite(content, "distance"), "distance", ANY)
    assert "distances are supported in integers with one scale only" in {
        leftover.reason for leftover in library.leftovers
    }
