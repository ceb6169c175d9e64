# SPDX-License-Identifier: Apache-2.0
"""Turning what TVM raises and prints into errors of this project."""

import contextlib
import io
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator

from utvm.errors import CompileError, UtvmError

_LOG = logging.getLogger("utvm.compiler")


@contextlib.contextmanager
def tvm_errors(origin: str, doing: str) -> Iterator[None]:
    """Report anything that goes wrong inside TVM as a CompileError, and keep its prints and warnings to itself.

    Errors of this project pass through; their message begins with the model, too.

    Args:
        origin: what messages call the model.
        doing: what is being done, as in "could not {doing}".
    """
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        except Exception as error:  # TVM raises nearly every built-in kind, and its own
            _let_go(error)
            if isinstance(error, UtvmError):
                if error.message.startswith(origin):
                    raise
                raise type(error)(f"{origin}: {error.message}", error.hint) from error
            _LOG.debug("%s: could not %s: %r", origin, doing, error)
            raise CompileError(
                f"{origin}: could not {doing}: an operator, a shape or an element type is used in a way that is "
                "not supported",
                "try it without its last operators, and without more of them; a log (--log-level debug) has what "
                "TVM says",
            ) from error


def _let_go(error: BaseException) -> None:
    """End what the failed frames still hold, while what TVM's C++ says about that goes nowhere."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        traceback.clear_frames(error.__traceback__)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
