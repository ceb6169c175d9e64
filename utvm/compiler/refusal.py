# SPDX-License-Identifier: Apache-2.0
"""Refuse a model with all reasons at once; convert TVM's errors into this project's."""

import contextlib
import io
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from utvm.errors import CompileError, UtvmError

HINT = "docs/operators.md lists supported operators; or export the model again"  # Default hint.
_AGAIN = "export the model again"
_MOST = 20
_LONGEST = 300  # Maximum characters of a reason.

# Part of a reason, and a hint for it.
_HELPS = (
    (r"fixed size|known while compiling|constant", "give sizes with --set shape, or export with constants folded"),
    (r"operator set|version", "convert it with onnx.version_converter"),
)


class Reading(NamedTuple):
    """An operator by its name in messages, with its inputs and outputs."""

    place: str
    inputs: Sequence[Any]
    outputs: Sequence[Any]


def check_order(origin: str, steps: Sequence[Reading], known: set[Any], name: Callable[[Any], str], hint: str) -> None:
    """Refuse an operator that reads a tensor before it is produced; add all outputs to ``known``."""
    producer = {output: step for step in steps for output in step.outputs}
    for step in steps:
        for value in step.inputs:
            if value in known:
                continue
            if value not in producer:
                raise CompileError(f"{origin}: nothing produces {name(value)}, which {step.place} reads", _AGAIN)
            if _depends_on(step, value, producer):
                raise CompileError(f"{origin}: the graph has a cycle through {step.place}", _AGAIN)
            raise CompileError(
                f"{origin}: {step.place} comes before {producer[value].place}, whose result it reads", hint
            )
        known.update(step.outputs)


def _depends_on(step: Reading, value: Any, producer: Mapping[Any, Reading]) -> bool:
    waiting, visited = [value], set()
    while waiting:
        current = waiting.pop()
        if current in step.outputs:
            return True
        if current not in visited and current in producer:
            visited.add(current)
            waiting.extend(producer[current].inputs)
    return False


def refusals(checks: Iterable[Callable[[], object]]) -> list[CompileError]:
    refused = []
    for check in checks:
        try:
            check()
        except CompileError as error:
            refused.append(error)
    return refused


def hints(refused: Iterable[CompileError]) -> str:
    return "; ".join(dict.fromkeys(error.hint for error in refused if error.hint))


def refuse(origin: str, reasons: Sequence[str], hint: str) -> None:
    """Raise an error with all reasons, each once; without reasons do nothing."""
    names = list(dict.fromkeys(reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}..." for reason in reasons))
    if not names:
        return
    helps = [help_ for text, help_ in _HELPS if any(re.search(text, item) for item in names)]
    begin = f"{origin}: " if origin else ""
    message = f"{begin}{names[0]}"
    if len(names) > 1:
        more = [f"and {len(names) - _MOST} more"] if len(names) > _MOST else []
        message = "\n    ".join([f"{begin}cannot be compiled, for {len(names)} reasons:", *names[:_MOST], *more])
    raise CompileError(message, "; ".join(filter(None, [*helps, hint])) or HINT)


_LOG = logging.getLogger("utvm.compiler")


@contextlib.contextmanager
def tvm_errors(origin: str, action: str) -> Iterator[None]:
    """Report errors inside TVM as CompileError, and discard its output and warnings."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        except Exception as error:  # TVM raises nearly every built-in kind, and its own
            _release_frames(error)
            if isinstance(error, UtvmError):
                if error.message.startswith(origin):
                    raise
                raise type(error)(f"{origin}: {error.message}", error.hint) from error
            _LOG.debug("%s: could not %s: %r", origin, action, error)
            raise CompileError(
                f"{origin}: could not {action}: an operator, a shape or an element type is used in a way that is "
                "not supported",
                "remove operators from the end to find the cause; --log-level debug logs more",
            ) from error


def _release_frames(error: BaseException) -> None:
    """Release objects held by the failed frames while TVM's C++ output is discarded."""
    sys.stderr.flush()
    copy = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        traceback.clear_frames(error.__traceback__)
    finally:
        os.dup2(copy, 2)
        os.close(copy)
        os.close(nowhere)
