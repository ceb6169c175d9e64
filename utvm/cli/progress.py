# SPDX-License-Identifier: Apache-2.0
"""Progress of long work on standard error: one changing line on a terminal, else a line now and then."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from utvm.base.text.progress import ProgressLine
from utvm.cli.output import print_step

_UPDATE_SECONDS = 1.0


@contextlib.contextmanager
def show(step: str) -> Iterator[Callable[[str], None]]:
    """Show progress in a thread, as a context manager; yields a function that begins a further step."""
    stop, progress = threading.Event(), ProgressLine(step)

    def watch() -> None:
        while not stop.wait(_UPDATE_SECONDS):
            progress.show()

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    # If the system allows no thread, work without progress.
    with contextlib.suppress(RuntimeError):
        thread.start()
    try:
        yield progress.begin
    finally:
        stop.set()
        if thread.ident is not None:
            thread.join()
        progress.close()


@contextlib.contextmanager
def print_steps(first: str = "") -> Iterator[Callable[[str], None]]:
    """As :func:`show`; each step is also printed as it begins, so that logs contain it, too."""
    with show(first) as begin:

        def say(step: str) -> None:
            if step:
                print_step(step)
            begin(step)

        yield say
