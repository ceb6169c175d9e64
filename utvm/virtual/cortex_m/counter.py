# SPDX-License-Identifier: Apache-2.0
"""The C part of a Cortex-M core, ``counter.c``: it counts instructions and stops before marked ones."""

import ctypes
from enum import IntEnum
from pathlib import Path

from utvm.virtual.engine import MEMORIES
from utvm.virtual.native import fields, load_library

BREAKPOINTS = 12  # six comparators with two halves of a word each
WATCHPOINTS = 4
WATCH_READ, WATCH_WRITE = 1, 2
_MEGABYTES = 4096


class Reason(IntEnum):
    """Reason for a stop before an instruction, ``enum stop`` of ``counter.c``."""

    NONE = 0
    REQUEST = 1
    BREAKPOINT = 2
    SLEEP = 3
    NO_COPROCESSOR = 4
    DIVIDE = 5
    UNALIGNED = 6
    READ_CONTROL = 7


class _Memory(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), *fields(ctypes.c_uint32, "start size"))


class _Watchpoint(ctypes.Structure):
    _fields_ = fields(ctypes.c_uint32, "first last access")


class CoreState(ctypes.Structure):
    """``core_t`` of ``counter.c``."""

    _fields_ = (
        *fields(ctypes.c_void_p, "emulation_stop register_read"),
        ("memory_count", ctypes.c_uint32),
        ("memories", _Memory * MEMORIES),
        *fields(ctypes.c_uint64, "count deadline"),
        *fields(
            ctypes.c_uint32, "stop pass_address masks_matter trap_division trap_unaligned float_enabled event"
        ),
        ("limits", ctypes.c_uint32 * 2),
        ("breakpoint_count", ctypes.c_uint32),
        ("breakpoints", ctypes.c_uint32 * BREAKPOINTS),
        ("breakpoint_filter", ctypes.c_uint64),
        ("watchpoints", _Watchpoint * WATCHPOINTS),
        *fields(ctypes.c_uint32, "reason begun watch_hits undo undo_reason"),
        ("undo_count", ctypes.c_uint64),
        ("undo_address", ctypes.c_uint32),
        ("saved", ctypes.c_uint32 * 16),
        ("saved_float", ctypes.c_uint32 * 33),
        *fields(ctypes.c_uint32, "data_address data_size"),
        ("data_bytes", ctypes.c_uint8 * 8),
        ("conditional", ctypes.c_uint32 * 7),
        ("kinds", ctypes.c_void_p * _MEGABYTES),
    )


def load_counter() -> ctypes.CDLL:
    """Load ``counter.c`` as a shared library."""
    return load_library(Path(__file__).with_name("counter.c"))
