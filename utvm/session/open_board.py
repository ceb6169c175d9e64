# SPDX-License-Identifier: Apache-2.0
"""The Python API of a board: :func:`utvm.open` opens one; models are loaded onto it and run."""

import contextlib
import os
import secrets
from pathlib import Path

import numpy.typing as npt

from utvm import boards, drivers, firmware
from utvm.base.log import log_folder, log_into
from utvm.base.process.service import Closing
from utvm.compiler import Library, Model, load
from utvm.paths import work
from utvm.probe.console import Console
from utvm.selection import BoardSelection
from utvm.session import application, board_holder, rpc, running
from utvm.session.application import Application, read_image
from utvm.session.profile import Profile, profile_of


class BoardMemory:
    """A board's memory, through its debug port; the core may be running."""

    def __init__(self, opened: drivers.Connection) -> None:
        self._connection = opened

    def read(self, address: int, size: int) -> bytes:
        """Read memory; raises UtvmError if the board refuses or has no debug port."""
        return self._connection.read_memory(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Write RAM; raises as :meth:`read`."""
        self._connection.write_memory(address, data)


class OpenBoard(Closing):
    """An open board, until :meth:`close` or the end of its ``with`` block; ``description`` is one line.

    Raises UtvmError if the board does not exist or is not available.
    """

    def __init__(self, selection: BoardSelection) -> None:
        logs = log_folder(work() / "logs" / f"python-{os.getpid()}-{secrets.token_hex(4)}")
        self._holder = board_holder.BoardHolder(boards.load(selection.board), selection, logs)
        with contextlib.ExitStack() as stack:
            stack.enter_context(log_into(logs))
            stack.callback(self._holder.release)
            self.description = self._holder.attach()
            self._open = stack.pop_all()

    def close(self) -> None:
        """Close the board and end the processes it needed. Safe to call again."""
        self._open.close()

    @property
    def connection(self) -> drivers.Connection:
        """Reset, breakpoints, registers. Raises ProbeError if the board is closed or a process it needs has
        died.
        """
        return self._holder.connection

    @property
    def memory(self) -> BoardMemory:
        """Memory of the board; raises as :attr:`connection`."""
        return BoardMemory(self.connection)

    @property
    def console(self) -> Console | None:
        """Serial console, or None; raises as :attr:`connection`."""
        return self.connection.console

    def load(self, model: str | Path | Model | Library) -> "LoadedModel":
        """Compile a model for this board, link it, and return it ready to run.

        It is a file, a model from :func:`utvm.compiler.load`, or a library from
        :func:`utvm.compiler.compile_model`, which is used as compiled. Raises UtvmError if it cannot be read or
        compiled, or does not fit.
        """
        if isinstance(model, str | Path):
            model = load(Path(model))
        library = model if isinstance(model, Library) else firmware.compile_for(self._holder.board, model)
        return LoadedModel(self._holder, library)

    def flash(self, elf: str | Path) -> application.Application:
        """Flash an image of your own and return it, halted before its first instruction.

        Raises UtvmError if it is not an image (ELF, Intel HEX, UF2) for this board's memory, or the board refuses.
        """
        return Application(self._holder.reset_board(), read_image(self._holder.board, elf))


class LoadedModel:
    """A compiled model and its firmware on a board. Running another model than the last one flashes it first."""

    def __init__(self, holder: board_holder.BoardHolder, library: Library) -> None:
        self._holder = holder
        self.library = library
        self.image = holder.link([library])

    def run(self, *inputs: npt.ArrayLike) -> running.RunResult:
        """Run the model once; raises as :meth:`utvm.session.running.Session.run`.

        ``inputs`` are an array per input, of exactly the declared shape and element type.
        """
        return self._holder.session(self.image).run(self.library.name, inputs)

    def forget(self) -> None:
        """Reset a model that keeps state between runs; raises as :meth:`utvm.session.running.Session.forget`."""
        self._holder.session(self.image).forget(self.library.name)

    def profile(self, *inputs: npt.ArrayLike) -> Profile:
        """Run the model once, step by step, over RPC; arguments and errors as :meth:`run`."""
        with self._holder.serve([self.library]) as board, rpc.RpcSession(board, [self.library]) as session:
            _, counts = session.profile(self.library.name, inputs)
            return profile_of(self.library, board.description, board.unit, counts)
