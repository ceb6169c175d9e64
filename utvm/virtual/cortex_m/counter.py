# SPDX-License-Identifier: Apache-2.0
"""The C part of a virtual core: counts instructions exactly and stops where it is told. See ``counter.c``."""

import ctypes
from enum import IntEnum
from pathlib import Path

from utvm.virtual.native import load_library

BREAKPOINTS = 12  # six comparators with two halves of a word each
WATCHPOINTS = 4
WATCH_READ, WATCH_WRITE = 1, 2
MEMORIES = 16
NEVER = 2**64 - 1
_MEGABYTES = 4096


class Reason(IntEnum):
    """Why the C part stopped the core before an instruction."""

    NONE = 0
    ASKED = 1
    BREAKPOINT = 2
    SLEEP = 3
    NO_COPROCESSOR = 4
    DIVIDE = 5
    UNALIGNED = 6
    READ_CONTROL = 7


class CodeMemory(ctypes.Structure):
    """A region of memory: where this process has its bytes, its address and its size."""

    _fields_ = (("bytes", ctypes.c_void_p), ("start", ctypes.c_uint32), ("size", ctypes.c_uint32))

    bytes: int
    start: int
    size: int


class Watched(ctypes.Structure):
    """A range of data addresses that is watched; ``access`` has bit 0 for reads and bit 1 for writes."""

    _fields_ = (("first", ctypes.c_uint32), ("last", ctypes.c_uint32), ("access", ctypes.c_uint32))

    first: int
    last: int
    access: int


class CoreState(ctypes.Structure):
    """``core_t`` of ``counter.c``, field by field."""

    _fields_ = (
        ("emulation_stop", ctypes.c_void_p),
        ("register_read", ctypes.c_void_p),
        ("memory_count", ctypes.c_uint32),
        ("memories", CodeMemory * MEMORIES),
        ("count", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("stop", ctypes.c_uint32),
        ("pass_address", ctypes.c_uint32),
        ("masks_matter", ctypes.c_uint32),
        ("trap_division", ctypes.c_uint32),
        ("trap_unaligned", ctypes.c_uint32),
        ("float_enabled", ctypes.c_uint32),
        ("event", ctypes.c_uint32),
        ("limits", ctypes.c_uint32 * 2),
        ("breakpoint_count", ctypes.c_uint32),
        ("breakpoints", ctypes.c_uint32 * BREAKPOINTS),
        ("breakpoint_filter", ctypes.c_uint64),
        ("watchpoints", Watched * WATCHPOINTS),
        ("reason", ctypes.c_uint32),
        ("begun", ctypes.c_uint32),
        ("watch_hits", ctypes.c_uint32),
        ("undo", ctypes.c_uint32),
        ("undo_reason", ctypes.c_uint32),
        ("undo_count", ctypes.c_uint64),
        ("undo_address", ctypes.c_uint32),
        ("saved", ctypes.c_uint32 * 16),
        ("saved_float", ctypes.c_uint32 * 33),
        ("data_address", ctypes.c_uint32),
        ("data_size", ctypes.c_uint32),
        ("data_bytes", ctypes.c_uint8 * 8),
        ("conditional", ctypes.c_uint32 * 7),
        ("kinds", ctypes.c_void_p * _MEGABYTES),
    )

    memory_count: int
    memories: "ctypes.Array[CodeMemory]"
    count: int
    deadline: int
    stop: int
    pass_address: int
    masks_matter: int
    trap_division: int
    trap_unaligned: int
    float_enabled: int
    event: int
    limits: "ctypes.Array[ctypes.c_uint32]"
    breakpoint_count: int
    breakpoints: "ctypes.Array[ctypes.c_uint32]"
    breakpoint_filter: int
    watchpoints: "ctypes.Array[Watched]"
    reason: int
    begun: int
    watch_hits: int
    undo: int
    undo_reason: int
    undo_count: int
    undo_address: int
    saved: "ctypes.Array[ctypes.c_uint32]"
    saved_float: "ctypes.Array[ctypes.c_uint32]"
    data_address: int
    data_size: int
    data_bytes: "ctypes.Array[ctypes.c_uint8]"


def load_counter() -> ctypes.CDLL:
    """Return the compiled ``counter.c``; raises as :func:`load_library`."""
    return load_library(Path(__file__).with_name("counter.c"))
