# SPDX-License-Identifier: Apache-2.0
"""Select the board of a command line, load, compile and link its model, and read the inputs: arrays, text, pictures."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from utvm import boards, compiler, drivers, errors, firmware, runtime, selection
from utvm.base.log import capture
from utvm.base.storage.arrays import read_arrays
from utvm.base.text.quoting import printable
from utvm.base.text.terminal import ProgressLine
from utvm.boards import Board
from utvm.cli.choices import CompiledChoice, ModelChoice
from utvm.cli.output import OUT
from utvm.compiler import ANY, CompileOptions, Library, Model, Tensor, bounded
from utvm.compiler.accelerator import AcceleratorUse
from utvm.compiler.compile import NOTES
from utvm.compiler.memory.regions import Memory, Region
from utvm.compiler.target import Goal
from utvm.errors import ConfigError
from utvm.firmware import Firmware
from utvm.firmware.inputs import are_pictures, quantise, random_inputs, read_pictures
from utvm.session.board_holder import executor_for
from utvm.tuning.log import tuned_target_for

_UNITS = {"K": 1024, "M": 1024 * 1024}


@contextlib.contextmanager
def compiling(model: object, explain: bool = False) -> Iterator[None]:
    """Show the compiler's progress in a ``with`` block.

    Args:
        explain: at the end, print the kernel of each operator, and whether it was folded or fused.
    """
    progress = ProgressLine(f"compiling {model}")
    with (
        capture(NOTES) if explain else contextlib.nullcontext(()) as notes,
        contextlib.closing(progress),
        bounded.looked_at(progress.show),
    ):
        yield
    for line in notes:
        OUT.print(line)


def compile_for(
    board: Board, model: Model, options: CompileOptions = CompileOptions(), name: str | None = None
) -> Library:
    """Compile a model as :func:`utvm.firmware.compile_for` does, and warn if a part of it stays in float."""
    with compiling(model.origin):
        library = firmware.compile_for(board, model, options, name)
    if library.leftovers:
        first, count = library.leftovers[0], len(library.leftovers)
        others = f"; {count - 1} more in ./inv model.report" if count > 1 else ""
        OUT.print(
            f"in float, though the model is quantised: {first.operator} ({printable(first.tensor)}): "
            f"{first.reason}{others}"
        )
    return library


def compile_choice(board: Board, choice: CompiledChoice, name: str | None = None) -> Library:
    return compile_for(board, load_model(choice), compile_options(board, choice), name)


def require_model_file(model: str) -> Path:
    """Return the path of the model's file; raise if none is given."""
    if not model:
        raise errors.ConfigError("no model is named", "give one with --model FILE")
    return Path(model)


def load_model(choice: ModelChoice) -> compiler.Model:
    path = require_model_file(choice.model)
    signature = choice.settings.get("signature", "")
    return compiler.load(
        path, run_python=choice.run_python, shapes=choice.shapes, values=choice.values, signature=signature
    )


def compile_options(board: Board | None, choice: CompiledChoice) -> CompileOptions:
    """Return the compile options of a command line; without a board, for any CPU."""
    settings = choice.settings
    accelerator = _one_of("accelerator", settings.get("accelerator", "auto"), AcceleratorUse)
    if board is None and accelerator == "all":
        raise errors.ConfigError("--set accelerator=all needs a board's accelerator", "name the board with --board")
    if board is None and "tuned" in settings:
        raise errors.ConfigError(
            "--set tuned needs the core that was tuned for", "name a board with that core: --board"
        )
    target = tuned_target_for(board, settings.get("tuned", "")) if board else ANY
    goal = _one_of("optimize", settings.get("optimize", "balance"), Goal)
    return CompileOptions(
        target=replace(
            target,
            unchecked=_is_yes(settings, "unchecked-indices"),
            goal=goal,
            weights_in_ram=_size(settings["weights-in-ram"]) if "weights-in-ram" in settings else None,
            input_rows=_is_yes(settings, "input-rows"),
        ),
        memory=_memory(settings.get("memory", ""), settings.get("pin", "")),
        executor=_one_of("executor", settings.get("executor", "aot"), Literal["aot", "graph"]),
        accelerator=accelerator,
        in_ram=_is_yes(settings, "in-ram"),
    )


def _is_yes(settings: dict[str, str], key: str) -> bool:
    return bool(_one_of(key, settings.get(key, "no"), Literal["yes", "no"]) == "yes")


def _one_of(key: str, value: str, words: Any) -> Any:
    if value not in get_args(words):
        raise errors.ConfigError(f"--set {key} cannot be {value!r}", f"it is one of {', '.join(get_args(words))}")
    return value


def _memory(regions: str, pins: str) -> Memory:
    regions_used = tuple(_region(item) for item in regions.split(",") if item) or Memory().regions
    return Memory(regions_used, dict(_pin(item) for item in pins.split(",") if item))


def _region(text: str) -> Region:
    name, equals, size = text.partition("=")
    if not equals:
        return Region(name)
    return Region(
        name, _size(size, f"{text!r} is not a memory region", "write NAME=SIZE, with a size like 65536 or 64K")
    )


def _size(text: str, problem: str = "", hint: str = "write a size like 65536 or 64K") -> int:
    number, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1)
    if not number.isdecimal():
        raise errors.ConfigError(problem or f"{text!r} is not a size", hint)
    return int(number) * unit


def _pin(text: str) -> tuple[str, str]:
    tensor, _, region = text.rpartition("=")
    if not tensor or not region:
        raise errors.ConfigError(f"{text!r} cannot be read", "the form is --set pin=TENSOR=REGION")
    return tensor, region


def find(where: selection.BoardSelection) -> drivers.ReachableBoard:
    """Return the selected board without starting anything."""
    return drivers.choose(boards.load(where.board), where)


def find_with_debug_port(where: selection.BoardSelection) -> drivers.ReachableBoard:
    """Return the selected board; raise if it has no debug port."""
    reachable = find(where)
    if "debug port" not in reachable.capabilities:
        raise errors.ConfigError(
            f"{reachable.board.name} has no debug port, which this command needs",
            "choose a board with one, for instance --board stm32f746; ./inv board.list shows all",
        )
    return reachable


def check_counts(reachable: drivers.ReachableBoard) -> None:
    """Raise if the board has no counter."""
    if reachable.board.cycle_counter == "none" or {"debug port"} == reachable.capabilities & {"debug port", "counter"}:
        raise errors.ConfigError(
            f"{reachable.board.name} has no counter, which this command needs",
            "use model.run or model.eval; on a Cortex-M with SysTick, set cycle_counter: systick",
        )


def image_for(
    reachable: drivers.ReachableBoard,
    libraries: list[Library],
    executor: runtime.Executor | None = None,
    pipe: str = "",
    in_ram: bool = False,
) -> Firmware:
    """Build firmware that runs libraries on a board, by default with the executor that suits the board."""
    kind = executor or executor_for(reachable.capabilities)
    return firmware.build(reachable.board, libraries, kind, pipe=pipe, in_ram=in_ram, able=reachable.capabilities)


def print_use(image: Firmware) -> None:
    """Print the memory use of an image, by region."""
    for name, used in image.region_use().items():
        size = image.board.region(name).size
        OUT.print(f"{name}: {used:,} of {size:,} bytes, {100 * used / size:.1f} %")


_SEED = 0


def note_input(library: Library, path: str) -> None:
    if not path and library.inputs:
        OUT.print(f"input: random values, seed {_SEED} (give your own with --input)")


def read_inputs(library: Library, path: str, scale: str = "") -> list[npt.NDArray[np.generic]]:
    """Return the inputs for the model, with real numbers quantised."""
    return quantise(read_unscaled_inputs(library, path, scale), library.inputs)


def read_unscaled_inputs(library: Library, path: str, scale: str) -> list[npt.NDArray[np.generic]]:
    """Read inputs, or draw random ones: uniform in [-1, 1) for floats, over the whole range for integers.

    Args:
        scale: values of black and white of a picture, see :func:`read_pictures`.
    """
    if not path:
        return random_inputs(library, np.random.default_rng(_SEED))
    if are_pictures(path):
        pictures = read_pictures(path, input_for_pictures(path, library.inputs), scale)
        if len(pictures) != 1:
            raise ConfigError(f"{path}: holds {len(pictures)} pictures", "name one; model.eval takes a folder")
        return [pictures.reshape(library.inputs[0].shape)]
    check_scale(scale)
    arrays = read_arrays(path)
    if "" in arrays:
        return [_to_sample(arrays[""], library.inputs[0]) if path.endswith(".csv") else arrays[""]]
    missing = [tensor.name for tensor in library.inputs if tensor.name not in arrays]
    if missing:
        raise ConfigError(f"{path}: has no array {', '.join(missing)}", f"it has: {', '.join(arrays)}")
    names = [tensor.name for tensor in library.inputs]
    if unknown := [name for name in arrays if name not in names]:
        raise ConfigError(f"{path}: its array {unknown[0]} is not an input", f"inputs: {', '.join(names)}")
    return [arrays[name] for name in names]


def input_for_pictures(path: str, inputs: Sequence[Tensor]) -> Tensor:
    """Return the only input of a model that is run on pictures."""
    if len(inputs) != 1:
        raise ConfigError(
            f"{path}: for one input, but the model has {len(inputs)}", "give an .npz with an array for each"
        )
    return inputs[0]


def check_scale(scale: str) -> None:
    """Refuse a scale for files that are not pictures."""
    if scale:
        raise ConfigError("--set scale is for pictures", "it gives their values of black and white; leave it out")


def _to_sample(numbers: npt.NDArray[np.float64], tensor: Tensor) -> npt.NDArray[np.generic]:
    if numbers.size != math.prod(tensor.shape):
        raise ConfigError(
            f"input {tensor.name} is {list(tensor.shape)}, and the file has {numbers.size} numbers", "give one sample"
        )
    return convert_numbers(numbers.reshape(tensor.shape), tensor)


def convert_numbers(numbers: npt.NDArray[np.float64], tensor: Tensor) -> npt.NDArray[np.generic]:
    """Convert the numbers of a CSV file to the type of an input, unless they are to be quantised."""
    if np.dtype(tensor.dtype).kind != "f" and tensor.scaling:
        return numbers
    with np.errstate(invalid="ignore", over="ignore"):
        cast = numbers.astype(tensor.dtype)
    if np.dtype(tensor.dtype).kind != "f" and not (cast == numbers).all():
        raise ConfigError(f"input {tensor.name} is {tensor.dtype}, and the file has numbers that do not fit it")
    return cast
