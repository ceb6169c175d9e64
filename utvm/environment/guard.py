"""Removes a container when the process that started it is gone, even by kill -9.

:func:`guard_container` starts this module as a process of its own. It reads from a pipe whose other end only the
starter has: the kernel closes that however the starter ends.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from utvm.environment import engine


@contextlib.contextmanager
def guard_container(name: str) -> Iterator[None]:
    """Have no container of that name when the ``with`` block, or this process, has ended."""
    # A session of its own: Ctrl-C in the terminal is for us, and we end it in order.
    watcher = subprocess.Popen(
        [sys.executable, "-m", "utvm.environment.guard", name],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield
    finally:
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait()


if __name__ == "__main__":
    sys.stdin.read()
    with engine.connected() as client:
        engine.remove_container(client, sys.argv[1])
