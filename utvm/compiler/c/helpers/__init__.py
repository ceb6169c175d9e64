# SPDX-License-Identifier: Apache-2.0
"""C helpers: templates, one per file of this folder. Words in capitals in a file name are parameters.

``dsp_plane_..._LIMIT.c`` defines ``dsp_plane_..._7`` with ``limit`` 7; ``max_TYPE.c`` defines ``max_int8``.
The filter ``instructions`` turns lines of assembler into C strings.
"""

import functools
import re
from collections.abc import Iterable
from pathlib import Path

import jinja2

from utvm.base.text.templates import templates_of
from utvm.compiler.c_files import C_TYPES, literal

_FOLDER = Path(__file__).parent
_VALUES = {
    "TYPE": "|".join(C_TYPES),
    "DIVISION": "(?:floor)?(?:quotient|remainder)",
    "INTEGER": r"u?int\d+",
    "REAL": r"float\d+",
}


def is_helper(name: str) -> bool:
    return _source(name) is not None


def helper_definitions(names: Iterable[str]) -> list[str]:
    """Return the C text of helpers and of their callees, callees first."""
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        source = _source(name)
        if name in texts or source is None:
            return
        file, values = source
        text = _templates().get_template(file).render(values, name=name)
        for called in sorted(set(re.findall(r"\w+", text)) - {name}):
            add(called)
        texts[name] = text

    for name in sorted(names):
        add(name)
    return list(texts.values())


@functools.lru_cache(maxsize=4096)
def _source(name: str) -> tuple[str, dict[str, str | int]] | None:
    """File of a helper, and the parameter values in its name; None if no file matches."""
    for pattern, file in _patterns():
        if match := pattern.fullmatch(name):
            values = match.groupdict().items()
            return file, {key: int(value) if value.isdecimal() else value for key, value in values}
    return None


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    def value(word: re.Match[str]) -> str:
        return f"(?P<{word[0].lower()}>{_VALUES.get(word[0], r'[0-9]+')})"

    return [(re.compile(re.sub("[A-Z]+", value, path.stem)), path.name) for path in sorted(_FOLDER.glob("*.c"))]


@functools.cache
def _templates() -> jinja2.Environment:
    environment = templates_of(jinja2.FileSystemLoader(_FOLDER))
    environment.filters["instructions"] = _instructions
    environment.globals |= {"c_types": C_TYPES, "literal": literal, "wrapping": _wrapping}
    return environment


def _instructions(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return "".join(f'        "{line}\\n"\n' for line in lines if line)


def _wrapping(dtype: str) -> str:
    """C type whose sums wrap around. Narrower types are computed as int and wrap when cast back."""
    return {"int32": "uint32_t", "int64": "uint64_t"}.get(dtype, C_TYPES[dtype])
