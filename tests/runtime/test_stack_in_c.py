# SPDX-License-Identifier: Apache-2.0
"""Stack use is measured to the byte, at any depth."""

import ctypes
from collections.abc import Iterator

import pytest

from utvm.base.process import run_tool
from utvm.runtime import DIRECTORY, INCLUDE

_WORDS = 16
_PAINT = 0xA5A5A5A5
# A linker script's symbols for the stack, defined for an array.
_STACK = f"""
#include <stdint.h>
uint32_t stack[{_WORDS}] = {{1}};
__asm__(".globl _utvm_stack_start, _utvm_stack_end\\n"
        ".set _utvm_stack_start, stack\\n"
        ".set _utvm_stack_end, stack + {4 * _WORDS}\\n");
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("stack")
    (folder / "stack.c").write_text(_STACK)
    run_tool(
        [
            *("gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC"),
            *(f"-I{INCLUDE}", f"-I{DIRECTORY / 'bare_metal'}", "-o", folder / "stack.so"),
            *(folder / "stack.c", DIRECTORY / "bare_metal" / "stack.c"),
        ]
    )
    return ctypes.CDLL(str(folder / "stack.so"))


@pytest.fixture
def stack(library: ctypes.CDLL) -> Iterator["ctypes.Array[ctypes.c_uint32]"]:
    words = (ctypes.c_uint32 * _WORDS).in_dll(library, "stack")
    words[:] = [_PAINT] * _WORDS
    yield words


@pytest.mark.parametrize("deepest", range(_WORDS + 1))
def test_stack_use_is_the_depth_of_the_deepest_word(
    library: ctypes.CDLL, stack: "ctypes.Array[ctypes.c_uint32]", deepest: int
) -> None:
    if deepest < _WORDS:
        stack[deepest] = 0
    assert library.utvm_stack_used() == 4 * (_WORDS - deepest)
