# SPDX-License-Identifier: Apache-2.0
"""A board as a Python program has it: :func:`utvm.open` gets one, models are loaded onto it and run."""

import contextlib
import os
import secrets
from pathlib import Path

import numpy.typing as npt

from utvm import boards
from utvm.base.log import log_folder, log_into
from utvm.base.process.service import Closing
from utvm.compiler import Library, Model, load
from utvm.drivers import Connection
from utvm.firmware import compile_for
from utvm.paths import work
from utvm.probe.console import Console
from utvm.selection import BoardSelection
from utvm.session.application import Application, read_elf
from utvm.session.board_holder import BoardHolder
from utvm.session.profile import Profile, profile_of
from utvm.session.rpc import RpcSession
from utvm.session.running import RunResult


class BoardMemory:
    """A board's memory, through its debug port; the core may be running."""

    def __init__(self, bench: Connection) -> None:
        self._bench = bench

    def read(self, address: int, size: int) -> bytes:
        """Return so many bytes; raises UtvmError where the board refuses, or has no debug port."""
        return self._bench.read_memory(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Write RAM; raises as :meth:`read`."""
        self._bench.write_memory(address, data)


class OpenBoard(Closing):
    """A board that is ours until it is closed, or its ``with`` block ends.

    Attributes:
        description: one line that says what it is: on a desk, or software, and whose.

    Args:
        name: of the board, or the path of its folder; settings behind a colon.
        asked: which one, where there are several.

    Raises:
        UtvmError: there is no such board, or none of it can be had.
    """

    def __init__(self, wanted: BoardSelection) -> None:
        logs = log_folder(work() / "logs" / f"python-{os.getpid()}-{secrets.token_hex(4)}")
        self._holder = BoardHolder(boards.load(wanted.board), wanted, logs)
        with contextlib.ExitStack() as stack:
            stack.enter_context(log_into(logs))
            stack.callback(self._holder.release)
            self.description = self._holder.attach()
            self._open = stack.pop_all()

    def close(self) -> None:
        """Let go of the board and end what it needed. Safe to call again."""
        self._open.close()

    @property
    def connection(self) -> Connection:
        """All that the board can do: reset, breakpoints, registers.

        Raises:
            ProbeError: it is closed, or something that it needs has died.
        """
        return self._holder.connection

    @property
    def memory(self) -> BoardMemory:
        """Its memory; raises as :attr:`bench`."""
        return BoardMemory(self.connection)

    @property
    def console(self) -> Console | None:
        """Its serial line, None where there is none; raises as :attr:`bench`."""
        return self.connection.console

    def load(self, model: str | Path | Model | Library) -> "LoadedModel":
        """Compile a model for this very board, link it, and return it ready to run.

        Args:
            model: a file, or what :func:`utvm.compiler.load` has read of one. A library, from
                :func:`utvm.compiler.compile_model`, is taken as it is: for whatever it was compiled.

        Raises:
            UtvmError: it cannot be read or compiled, or does not fit.
        """
        if isinstance(model, str | Path):
            model = load(Path(model))
        library = model if isinstance(model, Library) else compile_for(self._holder.board, model)
        return LoadedModel(self._holder, library)

    def flash(self, elf: str | Path) -> Application:
        """Program an image of your own and return it, halted before its first instruction.

        Raises:
            UtvmError: it is not an ELF file for this board's memory, or the board refuses.
        """
        return Application(self._holder.reset_board(), read_elf(self._holder.board, elf))


class LoadedModel:
    """A model on a board. Of several, the one that is asked is programmed first, if it is not the last that was.

    Attributes:
        library: what the compiler made of it: inputs, outputs, weights.
        image: its firmware; ``flash_bytes`` and ``ram_bytes`` say what it takes.
    """

    def __init__(self, holder: BoardHolder, library: Library) -> None:
        self._holder = holder
        self.library = library
        self.image = holder.link([library])

    def run(self, *inputs: npt.ArrayLike) -> RunResult:
        """Run it once.

        Args:
            inputs: an array for each input, of exactly the shape and element type that the model declares.

        Raises:
            UtvmError: as :meth:`utvm.session.running.Session.run`.
        """
        return self._holder.session(self.image).run(self.library.name, inputs)

    def forget(self) -> None:
        """Let it forget its earlier runs: the next one is like the first. For models that keep something.

        Raises:
            UtvmError: as :meth:`utvm.session.running.Session.forget`.
        """
        self._holder.session(self.image).forget(self.library.name)

    def profile(self, *inputs: npt.ArrayLike) -> Profile:
        """Run it once, step by step, over RPC; arguments and errors as :meth:`run`."""
        with self._holder.serve([self.library]) as board, RpcSession(board, [self.library]) as session:
            _, counts = session.profile(self.library.name, inputs)
            return profile_of(self.library, board.description, board.unit, counts)
