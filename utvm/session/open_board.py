# SPDX-License-Identifier: Apache-2.0
"""The Python API of a board: :func:`utvm.open` opens one; models are loaded onto it and run."""

import contextlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from utvm import boards, drivers, firmware
from utvm.base.log import log_folder, log_into
from utvm.base.process import Closing
from utvm.base.storage.files import write_whole
from utvm.base.text import terminal
from utvm.base.text.templates import templates_of
from utvm.compiler import Library, Model, Tensor, bounded, from_onnx, load
from utvm.compiler.library import Sample
from utvm.compiler.package.archive import package_library
from utvm.compiler.report import plan_svg
from utvm.errors import ConfigError
from utvm.firmware.inputs import quantise, random_inputs
from utvm.firmware.stack import run_stack
from utvm.paths import work
from utvm.probe.console import Console
from utvm.selection import BoardSelection
from utvm.session import application, board_holder, evaluation, rpc, running
from utvm.session.application import Application, read_image
from utvm.session.profile import Profile, profile_of


class BoardMemory:
    """A board's memory, through its debug port; the core may be running."""

    def __init__(self, connection: drivers.Connection) -> None:
        self._connection = connection

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

    def __repr__(self) -> str:
        return f"<{self.description}>"

    @property
    def connection(self) -> drivers.Connection:
        """Reset, breakpoints, registers. Raises ProbeError if the board is closed or a process it needs has died."""
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
        if isinstance(model, Library):
            return LoadedModel(self._holder, model)
        return _compiled(self._holder, load(Path(model)) if isinstance(model, str | Path) else model)

    def flash(self, elf: str | Path) -> application.Application:
        """Flash an image of your own and return it, halted before its first instruction.

        Raises UtvmError if it is not an image (ELF, Intel HEX, UF2) for this board's memory, or the board refuses.
        """
        return Application(self._holder.reset_board(), read_image(self._holder.board, elf))


class LoadedModel(Closing):
    """A compiled model and its firmware on a board. A model that is not on the board is flashed first.

    Attributes:
        board: the board that is closed with the model; None if it is open on its own.
    """

    board: OpenBoard | None = None

    def __init__(self, holder: board_holder.BoardHolder, library: Library, model: Model | None = None) -> None:
        self._holder = holder
        self._model = model
        self.library = library
        self.image = holder.link([library])

    def close(self) -> None:
        """Close :attr:`board`. Safe to call again."""
        if self.board:
            self.board.close()

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Name, shape, element type and scaling of each input."""
        return self.library.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Name, shape, element type and scaling of each output."""
        return self.library.outputs

    def run(self, *inputs: npt.ArrayLike) -> running.RunResult:
        """Run the model once; raises as :meth:`utvm.session.running.Session.run`.

        ``inputs`` are an array per input, of the declared shape and element type. Floats for a quantised input
        are quantised, as on the command line.
        """
        return self._holder.session(self.image).run(self.library.name, quantise(inputs, self.inputs))

    def predict(self, *inputs: npt.ArrayLike) -> npt.NDArray[Any] | tuple[npt.NDArray[Any], ...]:
        """Run many samples, stacked along the first axis, and return the outputs stacked in the same way.

        Raises as :meth:`run`.
        """
        columns = zip(*(result.outputs for result in self._results(inputs)), strict=True)
        stacked = tuple(
            np.concatenate(column) if tensor.shape[:1] == (1,) else np.stack(column)
            for tensor, column in zip(self.outputs, columns, strict=True)
        )
        return stacked[0] if len(stacked) == 1 else stacked

    def evaluate(self, *inputs: npt.ArrayLike, labels: npt.ArrayLike | None = None) -> evaluation.Confusion:
        """Run many samples of a classifier and count the classes it predicts: ``.accuracy``, ``.counts``.

        Args:
            labels: the true class of each sample, from 0; may also follow the inputs.

        Raises ConfigError if a label is not a class, or if there is not one label per sample.
        """
        arrays, classes = (inputs[:-1], inputs[-1:]) if labels is None else (inputs, labels)
        answers = [result.outputs for result in self._results(arrays)]
        return evaluation.confusion(answers, _classes(classes, len(answers)))

    def compare(
        self, *others: "LoadedModel", inputs: npt.ArrayLike, labels: npt.ArrayLike = ()
    ) -> evaluation.Comparison:
        """Run this and other models, on this or other boards, and compare cost, memory and accuracy.

        Args:
            inputs: samples as for :meth:`predict`, for several inputs as a tuple.
            labels: the true classes, for the accuracy.
        """
        rows = []
        for model in (self, *others):
            results = model._results(inputs if isinstance(inputs, tuple) else (inputs,))
            classes = _classes(labels, len(results)) if np.size(labels) else []
            board = model._holder.identity.full_name
            rows.append(evaluation.row_of(model.library.name, board, model.image, results, classes))
        return evaluation.Comparison(rows)

    def quantize(
        self, *samples: npt.ArrayLike, to: str = "int8", calibration: str = "minmax", output: str | Path = ""
    ) -> "LoadedModel":
        """Quantise an ONNX float model, and load the result onto the same board; raises as ``model.quantize``.

        Args:
            samples: typical inputs, as for :meth:`predict`.
            to: ``int8`` or ``16x8``.
            output: a file to write.
        """
        import onnx

        from utvm.quantize import CALIBRATIONS, KINDS, quantize

        model = self._require_model("onnx")
        if to not in KINDS or calibration not in CALIBRATIONS:
            known = f"types: {', '.join(KINDS)}; calibrations: {', '.join(CALIBRATIONS)}"
            raise ConfigError(f"to={to!r}, calibration={calibration!r} is not possible", known)
        quantised = quantize(onnx.load_from_string(model.content), self._samples(samples), KINDS[to], calibration)
        data = quantised.SerializeToString(deterministic=True)
        if output:
            write_whole(Path(output), data)
        return _compiled(self._holder, from_onnx(data, f"{model.name}_{to}"))

    def package(self, path: str | Path) -> Path:
        """Write the compiled model as an archive for other build systems, as ``model.package`` does for a board."""
        stack = run_stack(self._holder.board, self.library)
        return package_library(self.library, Path(path), model=self._require_model(), stack=stack)

    def __repr__(self) -> str:
        title = f"{self.library.name} on {self._holder.identity.full_name}"
        return f"<{title}: {self.image.flash_bytes:,} bytes of flash, {self.image.ram_bytes:,} of RAM>"

    def _repr_html_(self) -> str:
        """The model in a notebook: inputs, outputs, memory and steps."""
        page = templates_of("utvm.session", html=True).get_template("model.html")
        return page.render(title=repr(self)[1:-1], library=self.library, plan=Markup(plan_svg(self.library)))

    def _samples(self, inputs: Sequence[npt.ArrayLike]) -> list[Sample]:
        names = [tensor.name for tensor in self.inputs]
        if len(inputs) != len(names):
            raise ConfigError(f"{len(inputs)} arrays for {len(names)} inputs", f"the model takes {', '.join(names)}")
        return evaluation.as_samples(dict(zip(names, quantise(inputs, self.inputs), strict=True)), self.inputs)

    def _results(self, inputs: Sequence[npt.ArrayLike]) -> list[running.RunResult]:
        samples, session = self._samples(inputs), self._holder.session(self.image)
        return [session.run(self.library.name, sample) for sample in terminal.count(samples, self.library.name)]

    def _require_model(self, format_: str = "") -> Model:
        if self._model is None or format_ not in ("", self._model.format):
            raise ConfigError(f"{self.library.name} is not from a model file in {format_ or 'any format'}", "load one")
        return self._model

    def forget(self) -> None:
        """Reset a model that keeps state between runs; raises as :meth:`utvm.session.running.Session.forget`."""
        self._holder.session(self.image).forget(self.library.name)

    def profile(self, *inputs: npt.ArrayLike) -> Profile:
        """Run the model once, step by step, over RPC; as :meth:`run`, without inputs on random ones."""
        values = quantise(inputs or random_inputs(self.library, np.random.default_rng(0)), self.inputs)
        with self._holder.serve([self.library]) as board, rpc.RpcSession(board, [self.library]) as session:
            _, counts = session.profile(self.library.name, values)
            return profile_of(self.library, board.description, board.unit, counts)


def _compiled(holder: board_holder.BoardHolder, model: Model) -> LoadedModel:
    """Compile a model for a board; a notebook shows that this takes time."""
    look = terminal.ProgressLine(f"compiling {model.name}").show
    with bounded.looked_at(look) if terminal.in_notebook() else contextlib.nullcontext():
        return LoadedModel(holder, firmware.compile_for(holder.board, model), model)


def _classes(labels: Any, samples: int) -> list[int]:
    classes = np.asarray(labels).ravel()
    if len(classes) != samples:
        raise ConfigError(f"there are {len(classes)} labels for {samples} samples", "give a label for each")
    return [int(label) for label in classes]
