# SPDX-License-Identifier: Apache-2.0
"""C identifiers from arbitrary names."""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from utvm.base.storage.config import read_yaml

_WORDS = {kind: text.split() for kind, text in read_yaml(Path(__file__).with_suffix(".yaml"))[0].items()}
_MATH = [f"{name}{suffix}" for name in _WORDS["mathematics"] for suffix in ("", "f", "l")]
RESERVED = frozenset([*_WORDS["keywords"], *_WORDS["library"], *_MATH])
"""Names that generated code must not define."""

_TYPE_LIKE = re.compile(r"^(u?int(8|16|32|64|ptr|max)_t|U?INT\d*_\w*|size_t)$")


def library_name(text: str) -> str:
    """Return a C identifier for a library, close to the text and, ignoring case, not a standard header's name."""
    name = identifier(text, "model")
    return f"{name}_model" if name.lower() in _WORDS["headers"] else name


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
