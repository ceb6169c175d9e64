"""Putting a model on a board that answers RPC, for the commands that talk to it."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from utvm import boards, compiler, firmware
from utvm.attach import attach
from utvm.boards import Board, ProcessBoard
from utvm.cli.library import executor_of
from utvm.compiler import Library
from utvm.errors import ConfigError
from utvm.firmware import Firmware
from utvm.probe.choice import Wish, wish
from utvm.session import HostDriven, Session
from utvm.session.rpc import RpcSession
from utvm.session.rpc_board import RpcBoard, as_process, on_bench


@dataclass(frozen=True)
class Where:
    """What the options say of the board: its name, and which one of those there are."""

    board: str
    physical: bool
    virtual: bool
    serial: str

    def find(self) -> tuple[Board | ProcessBoard, Wish]:
        """Read the board's data, and which one of it is wished for.

        Raises:
            ConfigError: there is no such board, or the options do not go together.
        """
        kind = wish(self.physical, self.virtual)
        known = boards.load_any(self.board)
        if isinstance(known, ProcessBoard) and (self.physical or self.virtual or self.serial):
            raise ConfigError(f"{known.name} is a process: it is neither plugged in nor virtual", "leave that out")
        return known, kind


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
    known, kind = where.find()
    if model == Path():
        raise ConfigError("no model is named", "give one with --model FILE")
    library = compiler.compile_model(compiler.load(model), target=known.target, executor=executor_of(executor))
    image = firmware.build(known, [library], "rpc", pipe=transport)
    with contextlib.ExitStack() as stack:
        if isinstance(known, ProcessBoard):
            ready = stack.enter_context(as_process(image, logs, log))
        else:
            bench = stack.enter_context(attach(known, kind, serial=where.serial, log_directory=logs))
            ready = stack.enter_context(on_bench(bench, image, log))
        yield Opened(ready, library, known.clock_hz)


def driver_of(board: Board | ProcessBoard) -> Literal["host_driven", "rpc"]:
    """Return what drives a board to run its models: its debug port, or RPC where that is all it has."""
    return "rpc" if isinstance(board, ProcessBoard) else "host_driven"


@contextlib.contextmanager
def running(image: Firmware, kind: Wish, serial: str, logs: Path, say: Callable[[str], None]) -> Iterator[Session]:
    """Put a firmware that was built for :func:`driver_of` on its board, for the length of a ``with`` block.

    Args:
        say: receives one line that says what the board is, before the firmware is programmed.

    Raises:
        UtvmError: whatever went wrong on the way.
    """
    with contextlib.ExitStack() as stack:
        session: Session
        if isinstance(image.board, ProcessBoard):
            ready = stack.enter_context(as_process(image, logs))
            say(ready.description)
            session = stack.enter_context(RpcSession(ready, image.libraries))
        else:
            bench = stack.enter_context(attach(image.board, kind, serial=serial, log_directory=logs))
            say(bench.describe())
            session = stack.enter_context(HostDriven(bench, image))
        yield session
