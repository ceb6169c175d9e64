# SPDX-License-Identifier: Apache-2.0
"""Exit codes come from our own commands only: a library that calls ``exit()`` ends the process with 3.

OpenBLAS calls ``exit(1)`` where it lacks memory, and 1 means that a test failed.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator

from utvm.errors import ExitCode

_MESSAGE = b"error: a library ended the program\n  hint: is there enough memory (ulimit -v)?\n"
_LIBC = ctypes.CDLL(None)
_HANDLER_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)


@contextlib.contextmanager
def foreign_exits_are_infrastructure() -> Iterator[None]:
    """End the process with 3 where anything but Python itself calls C's ``exit()`` within the ``with`` block."""
    guarding = True
    process = os.getpid()

    def end(_argument: int | None, _status: int) -> None:
        if guarding and os.getpid() == process:
            with contextlib.suppress(OSError):
                os.write(2, _MESSAGE)
            os._exit(int(ExitCode.INFRASTRUCTURE))

    handler = _HANDLER_TYPE(end)
    name = ctypes.create_string_buffer(1)  # Its address names the handler to the C library.
    _LIBC.__cxa_atexit(handler, None, name)
    try:
        yield
    finally:
        guarding = False
        # Calls the handler once more, and forgets it: Python's own end must not find it.
        _LIBC.__cxa_finalize(name)
