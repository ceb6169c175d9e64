"""Putting a model on a board that answers RPC, for the commands that talk to it."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from utvm import boards, compiler, firmware
from utvm.attach import attach, wish
from utvm.boards import ProcessBoard
from utvm.cli.library import executor_of
from utvm.compiler import Library
from utvm.errors import ConfigError
from utvm.session.rpc_board import RpcBoard, as_process, on_bench


@dataclass(frozen=True)
class Where:
    """What the options say of the board: its name, and which one of those there are."""

    board: str
    physical: bool
    virtual: bool
    serial: str


@dataclass(frozen=True)
class Opened:
    """A model on a board that answers RPC.

    Attributes:
        clock_hz: what the board's cycle counter counts in a second.
    """

    board: RpcBoard
    library: Library
    clock_hz: int


@contextlib.contextmanager
def opened(
    where: Where, model: Path, executor: str, logs: Path, log: Callable[[str], None], transport: str = ""
) -> Iterator[Opened]:
    """Compile a model and put it with the RPC server on a board, for the length of a ``with`` block.

    Args:
        executor: ``aot`` or ``graph``.
        log: receives what the board logs.
        transport: what RPC goes through; by default the console, or a process's streams.

    Raises:
        UtvmError: whatever went wrong on the way.
    """
    kind = wish(where.physical, where.virtual)
    if model == Path():
        raise ConfigError("no model is named", "give one with --model FILE")
    known = boards.load_any(where.board)
    if isinstance(known, ProcessBoard) and (where.physical or where.virtual or where.serial):
        raise ConfigError(f"{known.name} is a process: it is neither plugged in nor virtual", "leave that out")
    library = compiler.compile_model(compiler.load(model), features=known.features, executor=executor_of(executor))
    image = firmware.build(known, [library], "rpc", pipe=transport)
    with contextlib.ExitStack() as stack:
        if isinstance(known, ProcessBoard):
            ready = stack.enter_context(as_process(image, logs, log))
        else:
            bench = stack.enter_context(attach(known, kind, serial=where.serial, log_directory=logs))
            ready = stack.enter_context(on_bench(bench, image, log))
        yield Opened(ready, library, known.clock_hz)
