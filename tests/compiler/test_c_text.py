# SPDX-License-Identifier: Apache-2.0
"""Literals, names and helpers of the generated C."""

import ctypes
import math
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from host_library import FLAGS
from hypothesis import given
from hypothesis import strategies as st

from utvm.base.process import run_tool
from utvm.compiler.c.helpers import helper_definitions
from utvm.compiler.c_files import C_TYPES, literal
from utvm.compiler.names import RESERVED, Scope, identifier, library_name

INTEGERS = [name for name in C_TYPES if "int" in name]


def compile_source(source: str, directory: Path) -> ctypes.CDLL:
    file = directory / "x.c"
    file.write_text("#include <stdint.h>\n#include <stdbool.h>\n#include <math.h>\n" + source)
    run_tool(["gcc", *FLAGS, "-O2", "-fsanitize=undefined", "-shared", "-fPIC", "-o",
         directory / "x.so", file, "-lm"])  # fmt: skip
    return ctypes.CDLL(str(directory / "x.so"))


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float_literal_reads_back_as_the_same_float(value: float) -> None:
    text = literal(value, "float32")
    assert text.endswith("f") and re.search(r"[.e]", text)
    assert struct.pack("f", float(text[:-1])) == struct.pack("f", value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_literal_reads_back_as_the_same_double(value: float) -> None:
    assert struct.pack("d", float(literal(value, "float64"))) == struct.pack("d", value)


def test_literals_equal_gccs(tmp_path: Path) -> None:
    floats = [0.0, -0.0, 0.1, 1e-45, 1.17549435e-38, 3.4028235e38, -1 / 3, 123456789.0, math.inf, -math.inf]
    numbers = {name: [np.iinfo(name).min, 0, 1, np.iinfo(name).max] for name in INTEGERS}
    lines = [f"const float f[] = {{{', '.join(literal(value, 'float32') for value in floats)}}};"]
    lines += [
        f"const {C_TYPES[name]} {name}[] = {{{', '.join(literal(value, name) for value in values)}}};"
        for name, values in numbers.items()
    ]
    library = compile_source("\n".join(lines), tmp_path)
    assert bytes((ctypes.c_char * 4 * len(floats)).in_dll(library, "f")) == np.array(floats, "f").tobytes()
    for name, values in numbers.items():
        array = np.array(values, name)
        assert bytes((ctypes.c_char * array.nbytes).in_dll(library, name)) == array.tobytes()


def test_nan_is_nan() -> None:
    assert literal(math.nan, "float32") == "NAN"
    assert literal(True, "bool") == "true"


def compute_by_numpy(operation: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    functions = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
                 "floordiv": np.floor_divide, "floormod": np.mod, "shl": np.left_shift}  # fmt: skip
    with np.errstate(over="ignore"):
        return np.asarray(functions[operation](a, b))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_helpers_equal_numpy_at_limits(dtype: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    operations = ["max", "min", "floordiv", "floormod"]
    operations += ["add", "sub", "mul", "shl"] if dtype in ("int32", "int64") else []
    limits, kind = np.iinfo(dtype), C_TYPES[dtype]
    edge = np.array([limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2, 3, 7, 100], dtype)
    edge = np.unique(np.concatenate([edge, (-edge.astype("int64")).astype(dtype)]))
    text = "".join(
        f"{''.join(helper_definitions([f'{name}_{dtype}']))}\n"
        f"void all_{name}(const {kind} *a, const {kind} *b, {kind} *c, int n)\n"
        f"{{ for (int i = 0; i < n; ++i) c[i] = {name}_{dtype}(a[i], b[i]); }}\n"
        for name in operations
    )
    library = compile_source(text, tmp_path)
    for name in operations:
        a, b = (grid.ravel() for grid in np.meshgrid(edge, edge))
        defined = np.ones(a.shape, bool)
        if name in ("floordiv", "floormod"):
            # Division by zero, and one quotient that does not fit, are undefined in C.
            defined = (b != 0) & ~((a == limits.min) & (b.astype("int64") == -1))
        if name == "shl":
            defined = (b >= 0) & (b < limits.bits)
        a, b = a[defined], b[defined]
        result = np.zeros_like(a)
        getattr(library, f"all_{name}")(*(ctypes.c_void_p(array.ctypes.data) for array in (a, b, result)), len(a))
        np.testing.assert_array_equal(result, compute_by_numpy(name, a, b), err_msg=name)
    assert "runtime error" not in capfd.readouterr().err


@given(st.text(), st.text())
def test_identifiers_are_c_and_differ(first: str, second: str) -> None:
    scope = Scope()
    names = [scope.claim(first, "v"), scope.claim(second, "v")]
    assert len(set(names)) == 2
    for name in names:
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)
        assert name not in RESERVED


@pytest.mark.parametrize("word", ["for", "erf", "expf", "int32_t", "INT32_MAX", "y0", "NAN", "restrict"])
def test_reserved_words_are_changed(word: str) -> None:
    assert Scope().claim(word, "v") == f"{word}_"


def test_identifiers_stay_close_to_the_text() -> None:
    assert identifier("Modèle 3.v2", "m") == "Modele_3_v2"
    assert identifier("7segments", "model") == "model_7segments"
    assert identifier("模型", "model") == "model"


@pytest.mark.parametrize("name", ["math", "string", "Math", "stdint"])
def test_library_is_not_named_like_a_c_header(name: str) -> None:
    assert library_name(name) == f"{name}_model"
    assert library_name("mathematics") == "mathematics"
