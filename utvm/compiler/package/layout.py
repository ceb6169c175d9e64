# SPDX-License-Identifier: Apache-2.0
"""The files of a library in its package, and the terms under which its user gets them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import PurePosixPath

from utvm.compiler.library import Library
from utvm.errors import ConfigError

# Semantic Versioning 2.0.0, section 2; pre-release and build marks as Arduino's library manager takes them.
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


@dataclass(frozen=True)
class Terms:
    """Who answers for a package, and under which terms it may be used.

    Attributes:
        version: of the package, three numbers with dots.
        author: name, possibly with an e-mail address in angle brackets.
        url: page of the model; Arduino wants one.
        code_license: SPDX expression for the generated C, and for what this project has put beside it: its own.
        weights_license: SPDX expression for the weights, which have the terms of the model they come from.
    """

    version: str = "0.1.0"
    author: str = "unknown"
    url: str = "https://example.invalid/"
    code_license: str = "Apache-2.0"
    weights_license: str = "NOASSERTION"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value.strip() or not value.isprintable():
                raise ConfigError(f"a package's {field.name} cannot be {value!r}", "give one line of text")
        if not _VERSION.fullmatch(self.version):
            raise ConfigError(f"a package's version cannot be {self.version!r}", "give three numbers: 1.0.0")


ALIGNMENT = 16
"""Alignment of each region of working memory, in bytes, as in ``NAME.h``."""

SOURCES = PurePosixPath("codegen/host/src")
"""C files and private headers; the folder is Model Library Format's."""

HEADERS = PurePosixPath("codegen/host/include")
"""Public headers; the folder is Model Library Format's."""

GRAPHS = PurePosixPath("executor-config/graph")
"""Descriptions that a graph executor was made from; the folder is Model Library Format's."""

ARDUINO = PurePosixPath("src")
"""Folder that Arduino compiles: files that include those above. Model Library Format has the model's text here."""


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
