# SPDX-License-Identifier: Apache-2.0
"""Arithmetic that the runtime does without the compiler's library: binary64 ratios and decimal digits."""

import ctypes
import struct
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st


class Text(ctypes.Structure):
    """``utvm_text_t``."""

    _fields_ = (("length", ctypes.c_uint32), ("bytes", ctypes.c_uint8 * 640))


@pytest.fixture(scope="module")
def numbers(load_library: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    library = load_library(["binary64.c", "text.c"])
    library.utvm_binary64_ratio.restype = ctypes.c_uint64
    library.utvm_binary64_ratio.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
    library.utvm_text_add_number.argtypes = (ctypes.POINTER(Text), ctypes.c_int64)
    library.utvm_text_is.restype = ctypes.c_bool
    return library


@given(st.integers(0, 2**62 - 1), st.integers(1, 2**61))
@example(1, 3)
@example(2**62 - 1, 1)
@example(1, 2**61)
@example(2**53 + 1, 2**53)
def test_ratio_is_the_nearest_double(numbers: ctypes.CDLL, numerator: int, denominator: int) -> None:
    bits = numbers.utvm_binary64_ratio(numerator, denominator)
    (ratio,) = struct.unpack("<d", struct.pack("<Q", bits))
    exact = Fraction(numerator, denominator)
    error = abs(Fraction(ratio) - exact)
    # Python's division rounds correctly; only ties may differ.
    assert error == abs(Fraction(numerator / denominator) - exact)


@given(st.integers(-(2**63), 2**63 - 1))
@example(-(2**63))
@example(0)
@example(10**18)
def test_digits_equal_python(numbers: ctypes.CDLL, number: int) -> None:
    text = Text()
    numbers.utvm_text_add_number(ctypes.byref(text), number)
    assert bytes(text.bytes[: text.length]).decode() == str(number)


@given(st.text("ab", max_size=4), st.text("ab\0", max_size=4))
def test_name_comparison_covers_all_bytes(numbers: ctypes.CDLL, name: str, given: str) -> None:
    equal = numbers.utvm_text_is(name.encode(), given.encode(), len(given))
    assert equal == (name == given)
