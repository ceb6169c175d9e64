# SPDX-License-Identifier: Apache-2.0
"""Refusing a model with all its reasons at once, a line each, and what would help."""

import re
from collections.abc import Callable, Iterable, Sequence

from utvm.errors import CompileError

HINT = "docs/operators.md says what is supported; or export the model again"
"""Where nothing better is known."""

_MOST = 20
_LONGEST = 300  # Letters of a reason.

# What a reason says, and what would help.
_HELPS = (
    (r"fixed size|known while compiling|constant", "give sizes with --shape, or export with constants folded"),
    (r"operator set|version", "convert it with onnx.version_converter"),
)


def refusals(checks: Iterable[Callable[[], object]]) -> list[CompileError]:
    """Make checks, and return all that they refuse."""
    refused = []
    for check in checks:
        try:
            check()
        except CompileError as error:
            refused.append(error)
    return refused


def hints(refused: Iterable[CompileError]) -> str:
    """Return what would help against refusals, each once."""
    return "; ".join(dict.fromkeys(error.hint for error in refused if error.hint))


def refuse(origin: str, reasons: Sequence[str], hint: str) -> None:
    """Raise an error that names all reasons, each once; without any, do nothing.

    Args:
        origin: what messages call the model; empty where somebody else puts that in front.
        hint: what the user can do about any of them.
    """
    told = list(
        dict.fromkeys(reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}..." for reason in reasons)
    )
    if not told:
        return
    helps = [help_ for said, help_ in _HELPS if any(re.search(said, item) for item in told)]
    begin = f"{origin}: " if origin else ""
    message = f"{begin}{told[0]}"
    if len(told) > 1:
        more = [f"and {len(told) - _MOST} more"] if len(told) > _MOST else []
        message = "\n    ".join([f"{begin}cannot be compiled, for {len(told)} reasons:", *told[:_MOST], *more])
    raise CompileError(message, "; ".join(filter(None, [*helps, hint])) or HINT)
