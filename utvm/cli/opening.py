"""What the options say of the board, for the commands that open one."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from utvm import boards, compiler, firmware
from utvm.bench import Asked, Found, choose
from utvm.boards import Board
from utvm.cli.library import executor_of
from utvm.compiler import Library
from utvm.errors import ConfigError
from utvm.firmware import Firmware
from utvm.probe.choice import wish
from utvm.runtime import Executor
from utvm.session.opening import executor_for
from utvm.session.rpc_board import RpcBoard, on_bench


@dataclass(frozen=True)
class Where:
    """What the options say of the board: its name, and which one of those there are."""

    board: str
    physical: bool = False
    virtual: bool = False
    serial: str = ""

    @property
    def asked(self) -> Asked:
        """What is wished for.

        Raises:
            ConfigError: the options do not go together.
        """
        return Asked(wish(self.physical, self.virtual), self.serial)

    def load(self) -> Board:
        """Read the board's data.

        Raises:
            ConfigError: there is no such board.
        """
        return boards.load(self.board)

    def find(self) -> Found:
        """Decide which one of the board is meant; nothing is started.

        Raises:
            UtvmError: as :meth:`load`, :attr:`asked` and :func:`utvm.bench.choose`.
        """
        asked = self.asked
        return choose(self.load(), asked)


def image_for(
    found: Found,
    libraries: list[Library],
    executor: Executor | None = None,
    pipe: str = "",
    in_ram: bool = False,
) -> Firmware:
    """Build what runs libraries on a board.

    Args:
        executor: by default what drives that board to run models.
        pipe, in_ram: as :func:`utvm.firmware.build`.

    Raises:
        UtvmError: as :func:`utvm.firmware.build`.
    """
    chosen = executor or executor_for(found.capabilities)
    return firmware.build(found.board, libraries, chosen, pipe=pipe, in_ram=in_ram, able=found.capabilities)


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
    found = where.find()
    if model == Path():
        raise ConfigError("no model is named", "give one with --model FILE")
    target = found.board.target
    library = compiler.compile_model(compiler.load(model), target=target, executor=executor_of(executor))
    image = image_for(found, [library], "rpc", transport)
    with found.opened(logs, log) as bench, on_bench(bench, image, log) as ready:
        yield Opened(ready, library, found.board.clock_hz)
