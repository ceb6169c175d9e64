# SPDX-License-Identifier: Apache-2.0
"""Compiling a model for a board: its CPU chooses kernels, its memory says what is too large."""

from typing import Literal

from utvm.boards import Board, MemoryRegion, alternatives
from utvm.boards.accelerators import assistant
from utvm.compiler import Library, Memory, Model, Target, compile_model
from utvm.compiler.accelerator import Wish
from utvm.compiler.target import Storage


def compile_for(
    board: Board,
    model: Model,
    *,
    name: str | None = None,
    memory: Memory | None = None,
    executor: Literal["aot", "graph"] = "aot",
    in_ram: bool = False,
    accelerator: Wish = "auto",
    target: Target | None = None,
) -> Library:
    """Compile a model into a library for a board.

    Args:
        target: by default the board's own; or that with what was tuned for it.
        in_ram: the image is to lie in RAM alone.
        accelerator: what the board's accelerator is given, where it has one.

    Others are those of :func:`utvm.compiler.compile_model`.
    """
    return compile_model(
        model,
        name=name,
        target=target or board.target,
        memory=memory,
        executor=executor,
        storage=_storage(board, in_ram),
        assistant=assistant(board, accelerator),
    )


def _storage(board: Board, in_ram: bool) -> Storage | None:
    if not board.memory:
        return None
    if in_ram:
        size = sum(region.size for region in board.memory if region.kind == "ram")
        return Storage(f"all RAM of {board.spoken}", size, "use a smaller model, or leave --in-ram out")
    region = board.region(board.layout.code)
    return Storage(f"region {region.name} of {board.spoken}", region.size, roomier(board, region))


def roomier(board: Board, full: MemoryRegion) -> str:
    """Say what has more room than a region has: other settings of its board, or other boards."""
    roles = [role for role, name in enumerate(board.layout.regions) if name == full.name]
    offers = []
    for other in alternatives(board):
        room = min(other.region(other.layout.regions[role]).size for role in roles)
        if room > full.size:
            offers.append(f"--board {other.spoken} has {room // 1024} KiB there instead of {full.size // 1024}")
    return "; ".join(offers) or "use a smaller model, or a board with more memory (./inv board.list)"
