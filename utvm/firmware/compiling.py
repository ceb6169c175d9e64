# SPDX-License-Identifier: Apache-2.0
"""Compiling a model for a board: its CPU chooses kernels, its memory says what is too large."""

from utvm.boards import Board, MemoryRegion, alternatives
from utvm.boards.accelerators import assistant
from utvm.compiler import CompileOptions, Library, Model, compile_model
from utvm.compiler.target import Storage


def compile_for(
    board: Board,
    model: Model,
    options: CompileOptions = CompileOptions(),
    name: str | None = None,
) -> Library:
    """Compile a model into a library for a board; see :func:`utvm.compiler.compile_model`.

    Args:
        name: prefix of the library's global symbols; by default the model's name.
    """
    return compile_model(
        model,
        name=name,
        target=options.target or board.target,
        memory=options.memory,
        executor=options.executor,
        storage=_storage(board, options.in_ram),
        assistant=assistant(board, options.accelerator),
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
