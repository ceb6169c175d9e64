# SPDX-License-Identifier: Apache-2.0
"""What ``model.run`` does and prints."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from utvm import boards, firmware
from utvm.arrays import read_arrays, write_array, write_arrays
from utvm.bench import Bench
from utvm.boards import Board
from utvm.choice import BoardChoice
from utvm.cli.choices import JsonChoice, RunChoice
from utvm.cli.compiling import compile_for
from utvm.cli.model_library import executor_of, load_named, memory_of, wish_of
from utvm.cli.opening import find, image_for
from utvm.cli.output import OUT, check_json, logs_of, write_json
from utvm.compiler import Library, Tensor
from utvm.errors import ConfigError
from utvm.files import check_places
from utvm.firmware import Firmware
from utvm.firmware.inputs import as_bytes, as_integers, as_reals
from utvm.hil import provenance
from utvm.log import kept_in
from utvm.names import printable
from utvm.session import RunResult, StandingAlone
from utvm.session.opening import open_session

_SEED = 0


def run_model(
    asked: RunChoice, where: BoardChoice, output_path: str, wanted: JsonChoice, standing_alone: bool, in_ram: bool
) -> None:
    """Compile a model, run it once on a board, and print and write what came out.

    Args:
        standing_alone: whether the board runs it by itself, on an input in its flash, and says the result.
        in_ram: whether it is loaded into RAM alone.

    Raises:
        UtvmError: whatever went wrong on the way.
    """
    if standing_alone and in_ram:
        raise ConfigError("--standing-alone and --in-ram exclude each other: RAM does not last", "give one")
    check_places(output_path)
    check_json(wanted)
    if standing_alone or in_ram:
        boards.load_chip(where.board)
    found = find(where)
    model = load_named(asked)
    executor = executor_of(asked.executor)
    wish = wish_of(asked.accelerator)
    library = compile_for(
        found.board, model, executor=executor, in_ram=in_ram, accelerator=wish, memory=memory_of(asked)
    )
    given = _read_given(library, asked.input, asked.raw)
    inputs = given if asked.raw else quantised(library, given)
    _check_output(library, output_path)
    as_bytes(inputs, library.inputs)  # refused here, before the board is made to work for it
    logs = logs_of("model.run")
    if standing_alone:
        image = firmware.build(found.board, [library], "standing_alone", inputs, able=found.capabilities)
        with kept_in(logs), found.opened(logs, say) as bench:
            say(bench.describe())
            result = _listen(bench, image)
    else:
        image = image_for(found, [library], in_ram=in_ram)
        with open_session(found, image, logs, say) as session:
            result = session.run(library.name, inputs)
    note_input(library, asked.input)
    # Who gave real numbers is answered in them.
    outputs = result.outputs
    if any(ours is not theirs for ours, theirs in zip(inputs, given, strict=True)):
        outputs = tuple(map(as_reals, outputs, library.outputs))
    for tensor, array in zip(library.outputs, outputs, strict=True):
        OUT.print(f"output {printable(tensor.name)}: {array.dtype.name} {list(tensor.shape)}")
        OUT.print(np.array2string(array, threshold=50))
    figures = _figures(image, result)
    OUT.print("  ".join(f"{name} {value:,}" for name, value in figures.items() if isinstance(value, int)))
    OUT.print(f"outputs_sha256 {figures['outputs_sha256']}")
    _write_outputs(library, outputs, output_path)
    write_json(wanted, {**figures, "environment": provenance.digest()})


def say(line: str) -> None:
    """Print a line as it is."""
    OUT.print(line)


def _listen(bench: Bench, image: Firmware) -> RunResult:
    alone = StandingAlone(bench, image)
    if alone.has_power_switch:
        OUT.print("programmed, switched off and on, and listened to")
        result = alone.power_cycle()
    else:
        OUT.print("programmed, reset and listened to: this board's power cannot be switched from here")
        result = alone.reset()
    OUT.print(f"cause of the reset, as the board has it: {alone.reset_cause}")
    bench.reset(halt=False)  # from now on it is left alone
    return result


def print_use(board: Board, image: Firmware) -> None:
    """Print how much of the board's memory an image takes."""
    for name, used in image.region_use().items():
        room = board.region(name).size
        OUT.print(f"{name}: {used:,} of {room:,} bytes, {100 * used / room:.1f} %")


def note_input(library: Library, path: str) -> None:
    """Say so where the inputs are not the user's."""
    if not path and library.inputs:
        OUT.print(f"input: random values, seed {_SEED} (give your own with --input)")


def _figures(image: Firmware, result: RunResult) -> dict[str, int | str]:
    digest = hashlib.sha256(b"".join(array.tobytes() for array in result.outputs)).hexdigest()
    # A process has its code and data where its computer puts them.
    taken = {"flash_bytes": image.flash_bytes, "ram_bytes": image.ram_bytes} if image.board.memory else {}
    # Nothing runs in no time: where nobody counts, there is no count.
    counted = {result.unit: result.count} if result.count else {}
    return {**counted, **taken, "outputs_sha256": digest}


def read_inputs(library: Library, path: str) -> list[npt.NDArray[np.generic]]:
    """Read the inputs, or make them, as the model takes them: real numbers are quantised."""
    return quantised(library, _read_given(library, path, raw=False))


def _read_given(library: Library, path: str, raw: bool) -> list[npt.NDArray[np.generic]]:
    """Read the inputs, or make them: uniform in [-1, 1) for floats, over the whole range for integers.

    Args:
        raw: the numbers of a text are integers where the model takes such, whatever they stand for.
    """
    if not path:
        return random_inputs(library, np.random.default_rng(_SEED))
    arrays = read_arrays(path)
    if "" in arrays:
        return [_as_declared(arrays[""], library.inputs[0], raw) if path.endswith(".csv") else arrays[""]]
    missing = [tensor.name for tensor in library.inputs if tensor.name not in arrays]
    if missing:
        raise ConfigError(f"{path}: has no array {', '.join(missing)}", f"it has: {', '.join(arrays)}")
    names = [tensor.name for tensor in library.inputs]
    if unknown := [name for name in arrays if name not in names]:
        raise ConfigError(f"{path}: has an array {unknown[0]}, which is no input", f"inputs: {', '.join(names)}")
    return [arrays[name] for name in names]


def quantised(library: Library, given: Sequence[npt.NDArray[np.generic]]) -> list[npt.NDArray[np.generic]]:
    """Return inputs with real numbers as the integers that a quantised input takes; others as they are."""
    if len(given) != len(library.inputs):
        return list(given)  # refused where they become bytes
    return list(map(as_integers, given, library.inputs))


def _as_declared(numbers: npt.NDArray[np.float64], tensor: Tensor, raw: bool) -> npt.NDArray[np.generic]:
    """Return the numbers of a text, which has no shape and element type, in those of an input."""
    if numbers.size != math.prod(tensor.shape):
        raise ConfigError(f"input {tensor.name} is {list(tensor.shape)}, and the file has {numbers.size} numbers")
    return typed(numbers.reshape(tensor.shape), tensor, raw)


def typed(numbers: npt.NDArray[np.float64], tensor: Tensor, raw: bool) -> npt.NDArray[np.generic]:
    """Return the numbers of a text in the element type of an input, or as they are where they are to be quantised.

    Raises:
        ConfigError: it takes integers, and one is none.
    """
    if np.dtype(tensor.dtype).kind != "f" and tensor.scaling and not raw:
        return numbers
    with np.errstate(invalid="ignore", over="ignore"):
        cast = numbers.astype(tensor.dtype)
    if np.dtype(tensor.dtype).kind != "f" and not (cast == numbers).all():
        raise ConfigError(f"input {tensor.name} is {tensor.dtype}, and the file has numbers that are not")
    return cast


def random_inputs(library: Library, generator: np.random.Generator) -> list[npt.NDArray[np.generic]]:
    """Draw what a library takes, as :func:`read_inputs` does."""
    return [_random(generator, tensor) for tensor in library.inputs]


def _random(generator: np.random.Generator, tensor: Tensor) -> npt.NDArray[np.generic]:
    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "f":
        return np.asarray(generator.uniform(-1.0, 1.0, tensor.shape), dtype=dtype)
    if dtype.kind == "b":
        return np.asarray(generator.integers(0, 2, tensor.shape), dtype=dtype)
    limits = np.iinfo(dtype)
    return np.asarray(generator.integers(limits.min, limits.max, tensor.shape, dtype, endpoint=True))


def _check_output(library: Library, output_path: str) -> None:
    """Refuse a file that cannot hold all outputs before the board is made to work for it."""
    if output_path and len(library.outputs) > 1 and not output_path.endswith(".npz"):
        raise ConfigError(
            f"{output_path}: the model has {len(library.outputs)} outputs", "give --output a .npz file"
        )


def _write_outputs(library: Library, outputs: Sequence[npt.NDArray[np.generic]], path: str) -> None:
    if not path:
        return
    if path.endswith(".npz"):
        names = [tensor.name for tensor in library.outputs]
        write_arrays(Path(path), dict(zip(names, outputs, strict=True)))
    else:
        write_array(Path(path), outputs[0])
