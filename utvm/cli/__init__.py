"""What ``./inv`` prints: the command line's words, kept out of the rooms that do the work.

``tasks.py`` lists the commands; each calls one function of this room. :func:`task` makes an Invoke task of a
function and turns the project's errors into one message, a hint and an exit code.
"""

import functools
import inspect
import sys
import traceback
from collections.abc import Callable
from typing import Any

from invoke.exceptions import Exit
from invoke.tasks import task as invoke_task

from utvm.errors import ExitCode, UtvmError
from utvm.process import interrupted

_BOARD_PATH = "board_path"
_BOARD_PATH_HELP = (
    "folders with boards of your own, with colons between them (default: the environment's UTVM_BOARD_PATH)"
)


def task(*positional: Callable[..., int | None], knows_boards: bool = False, **options: Any) -> Any:
    """Make an Invoke task of a function that returns an exit code, or None for success.

    Used as ``@task`` or, with Invoke's own options, as ``@task(name=..., help=...)``. An error of the project
    becomes one message with its hint, without a traceback unless ``--debug`` is given. Ctrl-C and SIGTERM end
    with the exit code for infrastructure: there is no verdict.

    A command with an option ``--board`` has ``--board-path`` too.

    Args:
        knows_boards: whether the command has ``--board-path`` although it has no ``--board``.
    """

    def decorate(function: Callable[..., int | None]) -> Any:
        signature = inspect.signature(function)
        searches = knows_boards or "board" in signature.parameters

        @functools.wraps(function)
        def body(*args: Any, **kwargs: Any) -> None:
            try:
                if path := kwargs.pop(_BOARD_PATH, ""):
                    from utvm.boards import search_also

                    search_also(path)
                code = function(*args, **kwargs)
            except UtvmError as error:
                if "--debug" in sys.argv or "-d" in sys.argv:
                    traceback.print_exc()
                # An interruption may be what is behind it.
                ends = ExitCode.INFRASTRUCTURE if interrupted() else error.exit_code
                raise Exit(f"error: {error}", int(ends)) from None
            except KeyboardInterrupt:
                raise Exit("interrupted", int(ExitCode.INFRASTRUCTURE)) from None
            except Exception:
                if interrupted():
                    raise Exit("interrupted", int(ExitCode.INFRASTRUCTURE)) from None
                # A fault of ours: Python's own exit code for it would say that a test failed.
                traceback.print_exc()
                raise Exit("internal error, please report it", int(ExitCode.INFRASTRUCTURE)) from None
            if code:
                raise Exit(code=int(code))

        if searches:
            option = inspect.Parameter(_BOARD_PATH, inspect.Parameter.KEYWORD_ONLY, default="")
            body.__dict__["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), option])
            options["help"] = {**options.get("help", {}), _BOARD_PATH: _BOARD_PATH_HELP}
        return invoke_task(body, **options)

    return decorate(*positional) if positional else decorate
