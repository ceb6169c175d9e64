# SPDX-License-Identifier: Apache-2.0
"""A process that ends when who started it ends, however that is: the kernel sees to it."""

import ctypes
import os
import signal
from collections.abc import Callable
from functools import partial

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> Callable[[], None]:
    """Return a ``preexec_fn`` for processes that are to end when the thread that starts them ends."""
    return partial(_die_with, os.getpid())


def _die_with(parent: int) -> None:
    """Have the kernel end the calling process when the thread that started it ends; it has if that has ended.

    Args:
        parent: the process that started it.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # One that was killed before it could be asked for: nothing would tell of that any more.
    if os.getppid() != parent:
        os._exit(1)
