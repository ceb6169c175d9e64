"""What ``./inv`` prints: the command line's words, kept out of the rooms that do the work.

``tasks.py`` lists the commands; each calls one function of this room. :func:`task` makes an Invoke task of a
function and turns the project's errors into one message, a hint and an exit code.
"""

import functools
import sys
import traceback
from collections.abc import Callable
from typing import Any

from invoke.exceptions import Exit
from invoke.tasks import task as invoke_task

from utvm.errors import ExitCode, UtvmError


def task(*positional: Callable[..., int | None], **options: Any) -> Any:
    """Make an Invoke task of a function that returns an exit code, or None for success.

    Used as ``@task`` or, with Invoke's own options, as ``@task(name=..., help=...)``. An error of the project
    becomes one message with its hint, without a traceback unless ``--debug`` is given. Ctrl-C and SIGTERM end
    with the exit code for infrastructure: there is no verdict.
    """

    def decorate(function: Callable[..., int | None]) -> Any:
        @functools.wraps(function)
        def body(*args: Any, **kwargs: Any) -> None:
            try:
                code = function(*args, **kwargs)
            except UtvmError as error:
                if "--debug" in sys.argv or "-d" in sys.argv:
                    raise
                raise Exit(f"error: {error}", int(error.exit_code)) from None
            except KeyboardInterrupt:
                raise Exit("interrupted", int(ExitCode.INFRASTRUCTURE)) from None
            except Exception:
                # A fault of ours: Python's own exit code for it would say that a test failed.
                traceback.print_exc()
                raise Exit("internal error, please report it", int(ExitCode.INFRASTRUCTURE)) from None
            if code:
                raise Exit(code=int(code))

        return invoke_task(body, **options)

    return decorate(*positional) if positional else decorate
