# SPDX-License-Identifier: Apache-2.0
"""Handwritten C programs with known instructions, stores and faults."""

from utvm.compiler import Library, Tensor
from utvm.compiler.library import Arena, Call, Placement

_FRAME = """#include "{name}.h"

{declarations}
int32_t {name}_run(const void *const *inputs, void *const *outputs, uint8_t *arena) {{
  const int32_t *x = inputs[0];
  int32_t *y = outputs[0];
  (void)x;
  (void)y;
  (void)arena;
{body}
}}
"""

_HEADER = """#include <stdint.h>
#define {upper}_ARENA_BYTES {arena_bytes}
int32_t {name}_run(const void *const *inputs, void *const *outputs, uint8_t *arena);
"""


def handwritten(
    name: str,
    body: str,
    declarations: str = "",
    *,
    inputs: int = 1,
    outputs: int = 1,
    elements: int = 4,
    arena_bytes: int = 0,
) -> Library:
    """Build a library from C statements.

    Args:
        name: name of the library; the function is ``NAME_run``.
        body: statements that read ``x[0]`` to ``x[3]``, write ``y[0]`` to ``y[3]``, all int32, and return 0.
        elements: number of elements of an input or output, a multiple of 4.
        declarations: code before the function.
        inputs: number of inputs; ``x`` is the first, the others are ``inputs[1]`` and so on.
        outputs: number of outputs; ``y`` is the first.
        arena_bytes: working memory in addition to inputs and outputs.
    """
    tensors = 4 * elements * (inputs + outputs)
    places = [Placement("arena", 4 * elements * number) for number in range(inputs + outputs)]
    return Library(
        name=name,
        sources={
            f"{name}.h": _HEADER.format(name=name, upper=name.upper(), arena_bytes=tensors + arena_bytes),
            f"{name}.c": _FRAME.format(name=name, body=body, declarations=declarations),
        },
        inputs=tuple(Tensor(f"x{number}", (elements,), "int32") for number in range(inputs)),
        outputs=tuple(Tensor(f"y{number}", (elements,), "int32") for number in range(outputs)),
        arenas=(Arena("arena", tensors + arena_bytes),),
        input_places=tuple(places[:inputs]),
        output_places=tuple(places[inputs:]),
        calls=(Call(f"{name}_run", "handwritten", 0, (), ()),),
        weights_bytes=0,
    )


def endless_recursion(name: str) -> Library:
    """Build a program with a function ``NAME_deeper`` that recurses until the stack overflows."""
    return handwritten(
        name,
        f"  return {name}_deeper(x[0], y);",
        f"static int32_t __attribute__((noinline)) {name}_deeper(int32_t depth, int32_t *y) {{\n"
        "  volatile int32_t frame[16];\n"
        "  if (depth == INT32_MAX) {\n"
        "    return 0;\n"
        "  }\n"
        "  frame[depth & 15] = depth;\n"
        "  y[0] = depth + 1;\n"
        f"  return {name}_deeper(y[0], y) + frame[depth & 15];\n"
        "}\n",
    )


def line_of(library: Library, text: str) -> int:
    """Line number of a text in the library's C source.

    Raises:
        ValueError: no line contains it, or several do.
    """
    lines = library.sources[f"{library.name}.c"].splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if text in line)
    return number
