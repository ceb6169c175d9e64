# SPDX-License-Identifier: Apache-2.0
"""C parts of virtual boards: compiled for the host on first use, then cached."""

import ctypes
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utvm.base.process import run_tool
from utvm.base.storage.cache import Cache, content_key
from utvm.errors import ToolchainError

_INCLUDE = Path(__file__).parent
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")
_SHARED = ("-std=c99", "-shared", "-fPIC")


def compile_library(
    output: Path,
    sources: Sequence[Path],
    flags: Sequence[str] = (),
    include: Sequence[Path] = (),
    libraries: Sequence[str] = (),
) -> None:
    """Compile C files into a shared library."""
    run_tool(
        ["gcc", *_SHARED, *flags, *(f"-I{folder}" for folder in include), "-o", output, *sources, *libraries],
        error=ToolchainError,
        hint="virtual boards need a C compiler for this machine: apt install gcc libc6-dev",
    )


def cached_library(
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str] = ("-O3", "-fno-semantic-interposition", *WARNINGS),
    include: Sequence[Path] = (_INCLUDE,),
    generated: Mapping[str, str] | None = None,
    unit: str = "",
) -> Path:
    """Return the path of a shared library, compiled unless cached.

    Headers of ``include`` are part of the cache key; ``generated`` are further files, text by name. ``unit`` is
    the one of them to compile, in place of the sources that it includes.
    """
    generated = generated or {}

    def build(folder: Path) -> None:
        for header, text in generated.items():
            (folder / header).write_text(text, encoding="utf-8")
        compile_library(folder / name, [folder / unit] if unit else sources, flags, (folder, *include))

    headers = (header for folder in include for header in sorted(folder.glob("*.h")))
    texts = [file.read_text(encoding="utf-8") for file in (*sources, *headers)]
    key = content_key(*generated.values(), *texts, " ".join(flags), platform.machine(), platform.libc_ver()[1])
    return Cache("virtual").fetch(key, build) / name


def cached_unit(*sources: Path) -> Path:
    """Return a shared library of C files of a folder, compiled as one unit: gcc inlines calls between them."""
    unit = {"unit.c": "".join(f'#include "{source.name}"\n' for source in sources)}
    include = (_INCLUDE, sources[0].parent)
    return cached_library(f"{sources[0].stem}.so", sources, include=include, generated=unit, unit="unit.c")


def load_library(*sources: Path) -> ctypes.CDLL:
    """Load C files of a folder."""
    return ctypes.CDLL(str(cached_unit(*sources)))


def fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    """Fields of a ``ctypes.Structure`` that have the same type."""
    return [(name, kind) for name in names.split()]
