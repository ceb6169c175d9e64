# SPDX-License-Identifier: Apache-2.0
"""Restricts the files that a function and its child processes can read, with Linux's Landlock.

An untrusted C source could include any file of the computer in the compiler's output.
"""

import ctypes
import os
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from utvm.errors import ProvisionError

_T = TypeVar("_T")

# The same on every architecture: Linux's include/uapi/asm-generic/unistd.h and linux/landlock.h.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_READ_FILE = 1 << 2
_NO_NEW_PRIVILEGES = 38
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/null")


def can_confine() -> bool:
    return sys.platform == "linux" and _call(_CREATE_RULESET, None, 0, _VERSION_FLAG) > 0


def run_in_landlock(work: Callable[[], _T], readable: Iterable[Path]) -> _T:
    """Run a function in a thread that can read only system files, Python's own files, and ``readable``.

    Args:
        readable: files, and folders with their contents; missing ones are ignored.
    """
    own = (sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"))
    allowed = [*map(Path, (*_SYSTEM, *own)), *readable]

    def restrict() -> _T:
        _restrict(allowed)
        return work()

    # Landlock restricts only the calling thread and its children.
    with ThreadPoolExecutor(1, thread_name_prefix="confined") as thread:
        return thread.submit(restrict).result()


def _restrict(allowed: Iterable[Path]) -> None:
    rules = _call(_CREATE_RULESET, struct.pack("=Q", _READ_FILE), 8, 0)
    try:
        for path in allowed:
            try:
                handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                _call(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", _READ_FILE, handle), 0)
            finally:
                os.close(handle)
        if _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or _call(_RESTRICT_SELF, rules, 0):
            raise ProvisionError(
                "the kernel cannot restrict a compiler's access to files (Landlock)",
                "Linux 5.13 is needed, and a container that allows it",
            )
    finally:
        if rules >= 0:
            os.close(rules)


def _call(number: int, *arguments: object) -> int:
    return int(_libc().syscall(number, *arguments))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
