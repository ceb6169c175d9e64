"""Turning what TVM raises into errors of this project."""

import contextlib
import warnings
from collections.abc import Iterator

from utvm.errors import CompileError, UtvmError


@contextlib.contextmanager
def tvm_errors(origin: str, doing: str) -> Iterator[None]:
    """Report anything that goes wrong inside TVM as a CompileError, and keep its warnings to itself.

    Args:
        origin: what messages call the model.
        doing: what is being done, as in "could not {doing}".
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except UtvmError:
            raise
        except Exception as error:  # TVM raises nearly every built-in kind, and its own
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = lines[-1][:300] if lines else type(error).__name__
            raise CompileError(
                f"{origin}: TVM could not {doing}: {reason}",
                "the model uses an operator, a shape or an element type in a way that is not supported",
            ) from error
