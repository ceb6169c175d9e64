# SPDX-License-Identifier: Apache-2.0
"""Where the files of a library lie in its package."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from utvm.compiler.library import Library

ALIGNMENT = 16
"""What every region of working memory begins at a multiple of, in bytes, as ``NAME.h`` says."""

SOURCES = PurePosixPath("codegen/host/src")
"""C files and private headers; the folder is Model Library Format's."""

HEADERS = PurePosixPath("codegen/host/include")
"""Public headers; the folder is Model Library Format's."""

GRAPHS = PurePosixPath("executor-config/graph")
"""Descriptions that a graph executor was made from; the folder is Model Library Format's."""

ARDUINO = PurePosixPath("src")
"""What Arduino compiles: files that include those above. Model Library Format keeps the model's text here."""


def public_headers(library: Library) -> list[str]:
    """The names of the headers that a user of the library includes."""
    named = (f"{library.name}.h", f"{library.name}_graph_executor.h")
    return [name for name in named if name in library.sources]


def c_files(library: Library) -> list[str]:
    """The names of the C files to compile."""
    return sorted(name for name in library.sources if name.endswith(".c"))


def placed_sources(library: Library) -> Iterator[tuple[str, str]]:
    """Yield the path in the package and the text of each of a library's files."""
    public = public_headers(library)
    for name, text in library.sources.items():
        if name.endswith(".json"):
            yield str(GRAPHS / f"{library.name}.graph"), text
        else:
            yield str((HEADERS if name in public else SOURCES) / name), text
