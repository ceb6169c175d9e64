# SPDX-License-Identifier: Apache-2.0
"""Where the regions of a library's working memory lie in the one arena of a firmware."""

from utvm.compiler import Library
from utvm.compiler.library import Placement

_ALIGNMENT = 16


def base(library: Library, region: str) -> int:
    """Return where a library's region begins in the arena: regions lie one behind the other."""
    offset = 0
    for arena in library.arenas:
        if arena.region == region:
            return offset
        offset += -(-arena.size_bytes // _ALIGNMENT) * _ALIGNMENT
    raise KeyError(region)


def address(library: Library, place: Placement) -> int:
    """Return where an input or output of a library is in the arena."""
    return base(library, place.region) + place.offset


def size(library: Library) -> int:
    """Return the bytes of arena that a library needs."""
    return max((base(library, arena.region) + arena.size_bytes for arena in library.arenas), default=0)
