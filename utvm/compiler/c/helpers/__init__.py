# SPDX-License-Identifier: Apache-2.0
"""Small C functions for TIRx operations that C lacks, emitted only if an operator calls them.

Some are generated for an element type, like ``max_float32``, or for a layer's numbers; others are C files of this
folder.
"""

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from utvm.compiler.c.dsp_kernels import dsp_helper, is_dsp_helper
from utvm.compiler.c.vector_tiles import is_vector_helper, vector_helper
from utvm.compiler.c_files import C_TYPES, literal

_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED_OF = {"int32": "uint32_t", "int64": "uint64_t"}

_BODIES = {
    "max": "return a > b ? a : b;",
    "min": "return a < b ? a : b;",
    "floordiv": "const {t} quotient = ({t})(a / b);\n"
    "    return ({t})(a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient);",
    "floormod": "const {t} remainder = ({t})(a % b);\n"
    "    return ({t})(remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder);",
    # Overflow wraps around, as in numpy; it is undefined for signed numbers in C.
    "add": "return ({t})(({u})a + ({u})b);",
    "sub": "return ({t})(({u})a - ({u})b);",
    "mul": "return ({t})(({u})a * ({u})b);",
    "shl": "return ({t})(({u})a << b);",
}


# A NaN as first operand is kept: activations pass their constant bounds second.
_OF_REALS = {
    "max": "return a <= b ? b : a;",
    "min": "return a >= b ? b : a;",
    "above": "return a > b ? a : b;",
    "below": "return a < b ? a : b;",
}
_CAST = re.compile(r"(u?)int(8|16|32|64)_of_(float32|float64)")

# Division by an input's value: in C, division by zero and of the minimum by -1 is undefined.
_BY_ANY = {"quotient": "/", "remainder": "%", "floorquotient": "floordiv", "floorremainder": "floormod"}


def is_helper(name: str) -> bool:
    operation, _, dtype = name.partition("_")
    return (
        (operation in (*_BODIES, *_OF_REALS, *_BY_ANY, "within") and dtype in C_TYPES)
        or _CAST.fullmatch(name) is not None
        or name in _files()
        or is_vector_helper(name)
        or is_dsp_helper(name)
    )


def helper_definitions(names: Iterable[str]) -> list[str]:
    """Return the C text of helpers and of their callees, callees first."""
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in texts:
            return
        text = _text(name)
        for called in sorted(set(re.findall(r"\w+", text)) - {name}):
            if is_helper(called):
                add(called)
        texts[name] = text

    for name in sorted(names):
        add(name)
    return list(texts.values())


def _text(name: str) -> str:
    if is_vector_helper(name):
        return vector_helper(name)
    if is_dsp_helper(name):
        return dsp_helper(name)
    return _files().get(name) or _typed_definition(name)


@functools.cache
def _files() -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.c"))}


def _typed_definition(name: str) -> str:
    if cast := _CAST.fullmatch(name):
        return _cast_definition(name, cast[1] == "u", int(cast[2]), cast[3])
    operation, dtype = name.split("_")
    c_type = C_TYPES[dtype]
    if operation == "within":
        return _within_definition(name, c_type, dtype in _SIGNED)
    if operation in _BY_ANY:
        return _division_definition(name, operation, dtype)
    if operation in ("floordiv", "floormod") and dtype not in _SIGNED:
        body = f"return ({c_type})(a {'/' if operation == 'floordiv' else '%'} b);"
    elif operation in _OF_REALS and dtype.startswith("float"):
        body = _OF_REALS[operation]
    else:
        body = _BODIES[operation].format(t=c_type, u=_UNSIGNED_OF.get(dtype, c_type))
    return f"static inline {c_type} {name}({c_type} a, {c_type} b)\n{{\n    {body}\n}}\n"


def _cast_definition(name: str, unsigned: bool, bits: int, source: str) -> str:
    target, c_type = name.partition("_")[0], C_TYPES[source]
    low = 0.0 if unsigned else -(2.0 ** (bits - 1))
    bound, limit = literal(low, source), literal(2.0 ** (bits if unsigned else bits - 1), source)
    prefix = target.upper()
    rest = "0" if unsigned else f"a <= {bound} ? {prefix}_MIN : 0"
    return f"""/* Rounds towards zero, to the nearest integer that there is; NaN gives 0. */
static inline {C_TYPES[target]} {name}({c_type} a)
{{
    if (a > {bound}) {{
        return a < {limit} ? ({C_TYPES[target]})a : {prefix}_MAX;
    }}
    return {rest};
}}
"""


def _division_definition(name: str, operation: str, dtype: str) -> str:
    c_type, means = C_TYPES[dtype], _BY_ANY[operation]
    unsigned = _UNSIGNED_OF.get(dtype, c_type)
    plain = f"{means}_{dtype}(a, b)" if means.startswith("floor") else f"({c_type})(a {means} b)"
    negated = f"({c_type})(({unsigned})0 - ({unsigned})a)" if "quotient" in operation else "0"
    minus_one = f"    if (b == -1) {{\n        return {negated};\n    }}\n" if dtype in _SIGNED else ""
    return f"""/* Division by zero gives 0, and overflow wraps around. */
static inline {c_type} {name}({c_type} a, {c_type} b)
{{
    if (b == 0) {{
        return 0;
    }}
{minus_one}    return {plain};
}}
"""


def _within_definition(name: str, c_type: str, signed: bool) -> str:
    test = "index < 0 || index >= extent" if signed else "index >= extent"
    return f"""/* Returns the index, or 0 for one that is out of range, and notes that. */
static inline {c_type} {name}({c_type} index, {c_type} extent, int32_t *outside)
{{
    if ({test}) {{
        *outside = 1;
        return 0;
    }}
    return index;
}}
"""
