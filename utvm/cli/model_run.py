# SPDX-License-Identifier: Apache-2.0
"""What ``model.run`` does and prints."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from utvm import boards, firmware
from utvm.base.log import log_into
from utvm.base.storage.arrays import write_array, write_arrays
from utvm.base.storage.files import check_writable
from utvm.base.text.quoting import printable
from utvm.boards import Board
from utvm.cli.choices import JsonChoice, RunChoice
from utvm.cli.model_inputs import note_input, quantised, read_given
from utvm.cli.model_library import compile_named
from utvm.cli.opening import find, image_for
from utvm.cli.output import OUT, check_json, logs_of, write_json
from utvm.compiler import Library
from utvm.drivers import Connection
from utvm.errors import ConfigError
from utvm.firmware import Firmware
from utvm.firmware.inputs import are_pictures, as_bytes, as_reals
from utvm.hil.report import checkout_digest
from utvm.selection import BoardSelection
from utvm.session import RunResult, StandaloneRunner
from utvm.session.board_holder import open_session


def run_model(
    asked: RunChoice,
    where: BoardSelection,
    output_path: str,
    wanted: JsonChoice,
    standing_alone: bool,
    in_ram: bool,
) -> None:
    """Compile a model, run it once on a board, and print and write what came out.

    Args:
        standing_alone: whether the board runs it by itself, on an input in its flash, and says the result.
        in_ram: whether it is loaded into RAM alone.
    """
    if standing_alone and in_ram:
        raise ConfigError("--standing-alone and --in-ram exclude each other: RAM does not last", "give one")
    check_writable(output_path)
    check_json(wanted)
    if standing_alone or in_ram:
        boards.load_chip(where.board)
    found = find(where)
    library = compile_named(found.board, asked, in_ram=in_ram)
    given = read_given(library, asked.input, asked.scale, asked.raw)
    # A picture's colours are always converted to the model's integers.
    inputs = given if asked.raw and not are_pictures(asked.input) else quantised(library, given)
    _check_output(library, output_path)
    as_bytes(inputs, library.inputs)  # refused here, before the board is made to work for it
    logs = logs_of("model.run")
    if standing_alone:
        image = firmware.build(found.board, [library], "standing_alone", inputs, able=found.capabilities)
        with log_into(logs), found.open(logs, say) as connection:
            result = _listen(connection, image)
    else:
        image = image_for(found, [library], in_ram=in_ram)
        with open_session(found, image, logs, say) as session:
            result = session.run(library.name, inputs)
    note_input(library, asked.input)
    outputs = result.outputs  # In real numbers where the inputs were.
    if not asked.raw and any(ours is not theirs for ours, theirs in zip(inputs, given, strict=True)):
        outputs = tuple(map(as_reals, outputs, library.outputs))
    for tensor, array in zip(library.outputs, outputs, strict=True):
        OUT.print(f"output {printable(tensor.name)}: {array.dtype.name} {list(tensor.shape)}")
        OUT.print(np.array2string(array, threshold=50))
    figures = _figures(image, result)
    OUT.print("  ".join(f"{name} {value:,}" for name, value in figures.items() if isinstance(value, int)))
    OUT.print(f"outputs_sha256 {figures['outputs_sha256']}")
    _write_outputs(library, outputs, output_path)
    write_json(wanted, {**figures, "environment": checkout_digest()})


def say(line: str) -> None:
    """Print a line as it is."""
    OUT.print(line)


def _listen(connection: Connection, image: Firmware) -> RunResult:
    say(connection.describe())
    alone = StandaloneRunner(connection, image)
    if alone.has_power_switch:
        OUT.print("programmed, switched off and on, and listened to")
        result = alone.power_cycle()
    else:
        OUT.print("programmed, reset and listened to: this board's power cannot be switched from here")
        result = alone.reset()
    OUT.print(f"cause of the reset, as the board has it: {alone.reset_cause}")
    connection.reset(halt=False)  # from now on it is left alone
    return result


def print_use(board: Board, image: Firmware) -> None:
    """Print how much of the board's memory an image takes."""
    for name, used in image.region_use().items():
        room = board.region(name).size
        OUT.print(f"{name}: {used:,} of {room:,} bytes, {100 * used / room:.1f} %")


def _figures(image: Firmware, result: RunResult) -> dict[str, int | str]:
    digest = hashlib.sha256(b"".join(array.tobytes() for array in result.outputs)).hexdigest()
    # A process has its code and data where its computer puts them.
    taken = {"flash_bytes": image.flash_bytes, "ram_bytes": image.ram_bytes} if image.board.memory else {}
    return {**result.count_by_unit, **taken, "outputs_sha256": digest}


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
