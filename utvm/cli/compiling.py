# SPDX-License-Identifier: Apache-2.0
"""Compiling a model for a board, as commands do it: they say what of a quantised model is computed in float."""

import contextlib
from collections.abc import Iterator

from utvm import firmware
from utvm.base.log import capture
from utvm.base.text.quoting import printable
from utvm.boards import Board
from utvm.cli import progress
from utvm.cli.output import OUT
from utvm.compiler import CompileOptions, Library, Model, bounded
from utvm.compiler.compile import NOTES


@contextlib.contextmanager
def compiling(model: object, explain: bool = False) -> Iterator[None]:
    """Tell how far the compiler is with a model, for the length of a ``with`` block.

    Args:
        explain: print in the end what became of its operators, and why.
    """
    with (
        capture(NOTES) if explain else contextlib.nullcontext(()) as notes,
        progress.looked_at(f"compile {model}", "compiling") as (_, look),
        bounded.looked_at(look),
    ):
        yield
    for line in notes:
        OUT.print(line)


def compile_for(
    board: Board,
    model: Model,
    options: CompileOptions = CompileOptions(),
    *,
    explain: bool,
    name: str | None = None,
) -> Library:
    """Compile a model as :func:`utvm.firmware.compile_for` does, and warn if a part of it stays in float.

    Args:
        explain: print the kernel of each operator, and whether it was folded or fused.
    """
    with compiling(model.origin, explain):
        library = firmware.compile_for(board, model, options, name)
    if library.leftovers:
        first, count = library.leftovers[0], len(library.leftovers)
        others = f"; {count - 1} more in ./inv model.report" if count > 1 else ""
        OUT.print(
            f"in float, though the model is quantised: {first.operator} ({printable(first.tensor)}): "
            f"{first.reason}{others}"
        )
    return library
