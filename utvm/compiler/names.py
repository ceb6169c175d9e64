# SPDX-License-Identifier: Apache-2.0
"""C identifiers from arbitrary names."""

import re
import unicodedata
from collections.abc import Iterable

_WORD = re.compile(r"\w+")
_KEYWORDS = _WORD.findall("""
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    bool true false asm typeof linux unix arm main NULL NAN INFINITY HUGE_VAL HUGE_VALF errno I
""")

# <math.h> (C99, 7.12); each also with the suffixes f and l.
_MATH = _WORD.findall("""
    acos asin atan atan2 cos sin tan acosh asinh atanh cosh sinh tanh exp exp2 expm1 frexp ilogb ldexp log log10
    log1p log2 logb modf scalbn scalbln cbrt fabs hypot pow sqrt erf erfc lgamma tgamma ceil floor nearbyint rint
    lrint llrint round lround llround trunc fmod remainder remquo copysign nan nextafter nexttoward fdim fmax fmin
    fma
""")

# Other names of <math.h> and <string.h> (7.21), and additions of C libraries.
_LIBRARY = _WORD.findall("""
    isnan isinf isfinite isnormal signbit fpclassify j0 j1 jn y0 y1 yn gamma signgam abs labs div index
    memcpy memmove memset memcmp memchr strcpy strncpy strcat strncat strcmp strcoll strncmp strxfrm strchr
    strcspn strpbrk strrchr strspn strstr strtok strerror strlen
""")

RESERVED = frozenset([*_KEYWORDS, *_LIBRARY, *(f"{name}{suffix}" for name in _MATH for suffix in ("", "f", "l"))])
"""Names that generated code must not define."""

_TYPE_LIKE = re.compile(r"^(u?int(8|16|32|64|ptr|max)_t|U?INT\d*_\w*|size_t)$")


# A library's <NAME.h> would shadow the C library's header (C99, 7.1.2, and POSIX).
_HEADERS = frozenset(
    _WORD.findall("""
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg stdbool stddef
    stdint stdio stdlib string tgmath time wchar wctype
    memory strings unistd features endian alloca malloc
""")
)


def library_name(text: str) -> str:
    """Return a C identifier for a library, close to the text and, ignoring case, not a standard header's name."""
    name = identifier(text, "model")
    return f"{name}_model" if name.lower() in _HEADERS else name


def identifier(text: str, fallback: str) -> str:
    """Convert text to letters, digits and underscores, beginning with a letter."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^0-9A-Za-z]+", "_", plain).strip("_")
    if not name:
        return fallback
    return f"{fallback}_{name}" if name[0].isdigit() else name


UNNAMED = re.compile(r"(?:lv|gv)\d*")  # TVM's names of unnamed tensors.


class Scope:
    """Hands out unique identifiers."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved)

    def claim(self, text: str, fallback: str) -> str:
        """Return an unused identifier close to the text that is not reserved in C."""
        base = identifier(text, fallback)
        if base in RESERVED or _TYPE_LIKE.match(base):
            base += "_"
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name

    def release(self, name: str) -> None:
        self._taken.discard(name)
