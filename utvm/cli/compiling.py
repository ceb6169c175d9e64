# SPDX-License-Identifier: Apache-2.0
"""Compiling a model for a board, as commands do it: they say what of a quantised model is computed in float."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from utvm import firmware
from utvm.base.log.setup import capture
from utvm.base.text.names import printable
from utvm.boards import Board
from utvm.cli import progress
from utvm.cli.output import OUT
from utvm.compiler import Library, Model, bounded
from utvm.compiler.accelerator import Wish
from utvm.compiler.compile import NOTES
from utvm.compiler.memory.regions import Memory
from utvm.tuning.log import tuned_target_for


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
    *,
    explain: bool,
    executor: Literal["aot", "graph"] = "aot",
    in_ram: bool = False,
    accelerator: Wish = "auto",
    memory: Memory | None = None,
    tuned: str = "",
    unchecked: bool = False,
    name: str | None = None,
) -> Library:
    """Compile a model, as :func:`utvm.firmware.compile_for` does, and print a line if a part of it is in float.

    Args:
        explain: print what became of each operator, too.
        tuned: a log of ``model.tune``: the best that it has computes each layer.
        unchecked: indices that come from inputs are not looked at.
    """
    target = replace(tuned_target_for(board, tuned), unchecked=unchecked)
    with compiling(model.origin, explain):
        library = firmware.compile_for(
            board,
            model,
            name=name,
            executor=executor,
            in_ram=in_ram,
            accelerator=accelerator,
            memory=memory,
            target=target,
        )
    if library.leftovers:
        first, count = library.leftovers[0], len(library.leftovers)
        others = f"; {count - 1} more in ./inv model.report" if count > 1 else ""
        OUT.print(
            f"in float, though the model is quantised: {first.operator} ({printable(first.tensor)}): "
            f"{first.reason}{others}"
        )
    return library
