# SPDX-License-Identifier: Apache-2.0
"""``model.run``: one run of a model on a board."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from utvm import boards, compiler, drivers, errors, firmware, selection
from utvm.base.log import log_into
from utvm.base.storage import arrays, files
from utvm.base.text.quoting import printable
from utvm.cli import choices, compiling
from utvm.cli.compiling import compile_for, compile_options, find, image_for, load_model
from utvm.cli.output import OUT, logs_of, say
from utvm.firmware.inputs import as_bytes, as_reals, quantise
from utvm.hil.report import checkout_digest
from utvm.session import RunResult, StandaloneRunner
from utvm.session.board_holder import open_session

_SILICON = Path("build/silicon.jsonl")  # One line for each run on a chip, with its modelled cycles.


def run_model(model: choices.RunChoice, where: selection.BoardSelection, output: str, standing_alone: bool) -> None:
    """Compile a model, run it once on a board, and print and write its outputs.

    Args:
        standing_alone: run stand-alone firmware, with its input in flash and its result on the console.
    """
    files.check_writable(output)
    reachable = find(where)
    options = compile_options(reachable.board, model)
    if standing_alone and options.in_ram:
        raise errors.ConfigError(
            "--standing-alone and --set in-ram=yes exclude each other: RAM loses its contents", "give one"
        )
    if standing_alone or options.in_ram:
        boards.load_chip(where.board)
    library = compile_for(reachable.board, load_model(model), options)
    values = compiling.read_unscaled_inputs(library, model.input, model.settings.get("scale", ""))
    inputs = quantise(values, library.inputs)
    _check_output(library, output)
    as_bytes(inputs, library.inputs)  # reject a wrong input before the board runs
    logs = logs_of("model.run")
    if standing_alone:
        image = firmware.build(reachable.board, [library], "standing_alone", inputs, able=reachable.capabilities)
        with log_into(logs), reachable.open(logs, say) as connection:
            result = _listen(connection, image)
    else:
        image = image_for(reachable, [library], in_ram=options.in_ram)
        with open_session(reachable, image, logs, say) as session:
            result = session.run(library.name, inputs)
    compiling.note_input(library, model.input)
    outputs = result.outputs
    if any(ours is not theirs for ours, theirs in zip(inputs, values, strict=True)):
        outputs = tuple(map(as_reals, outputs, library.outputs))  # real numbers, as the inputs were
    for tensor, array in zip(library.outputs, outputs, strict=True):
        OUT.print(f"output {printable(tensor.name)}: {array.dtype.name} {list(tensor.shape)}")
        OUT.print(np.array2string(array, threshold=50))
    figures = _figures(image, result)
    OUT.print("  ".join(f"{name} {value:,}" for name, value in figures.items() if isinstance(value, int)))
    if time := image.board.describe_time(result.count, result.unit):
        OUT.print(time)
    if result.unit == "cycles" and image.board.timing:
        figures |= _compare_with_model(where, image, result.count, inputs, logs)
    OUT.print(f"outputs_sha256 {figures['outputs_sha256']}")
    _write_outputs(library, outputs, output)
    ms = image.board.milliseconds(result.count, result.unit)
    OUT.results({**figures, **({"ms": ms} if ms else {}), "environment": checkout_digest()})


def _listen(connection: drivers.Connection, image: firmware.Firmware) -> RunResult:
    say(connection.describe())
    runner = StandaloneRunner(connection, image)
    if runner.has_power_switch:
        OUT.print("flashed and power-cycled; reading its console")
        result = runner.power_cycle()
    else:
        OUT.print("flashed and reset, as its power cannot be switched; reading its console")
        result = runner.reset()
    OUT.print(f"reset cause reported by the board: {runner.reset_cause}")
    connection.reset(halt=False)  # leave it running
    return result


def _compare_with_model(
    where: selection.BoardSelection,
    image: firmware.Firmware,
    cycles: int,
    inputs: Sequence[npt.NDArray[np.generic]],
    logs: Path,
) -> dict[str, int]:
    """Run the image on the virtual board at the chip's clock; print and record the error of its cycles."""
    chip = image.board
    clock = f",clock={chip.clock_hz // 1000000}" if chip.timing and chip.timing.states else ""
    name = f"{selection.split_name(where.board)[0]}:cycles=model{clock}"
    with open_session(find(selection.BoardSelection(name, "virtual")), image, logs, say) as session:
        modelled = session.run(image.libraries[0].name, inputs).count
    OUT.print(f"modelled: {modelled:,} cycles, {100 * (modelled / cycles - 1):+.1f} % (docs/time.md)")
    row = {"chip": chip.title, "program": image.libraries[0].name, "clock_hz": chip.clock_hz}
    _SILICON.parent.mkdir(exist_ok=True)
    with _SILICON.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**row, "cycles": cycles, "modelled_cycles": modelled}) + "\n")
    return {"modelled_cycles": modelled}


def _figures(image: firmware.Firmware, result: RunResult) -> dict[str, int | str]:
    digest = hashlib.sha256(b"".join(array.tobytes() for array in result.outputs)).hexdigest()
    # A process's code and data are placed by the host.
    sizes = {"flash_bytes": image.flash_bytes, "ram_bytes": image.ram_bytes} if image.board.memory else {}
    return {**result.count_by_unit, **sizes, "outputs_sha256": digest}


def _check_output(library: compiler.Library, output: str) -> None:
    """Before the board runs, refuse a file that cannot hold all outputs."""
    if output and len(library.outputs) > 1 and not output.endswith(".npz"):
        raise errors.ConfigError(f"{output}: the model has {len(library.outputs)} outputs", "give --output a .npz file")


def _write_outputs(library: compiler.Library, outputs: Sequence[npt.NDArray[np.generic]], path: str) -> None:
    if path.endswith(".npz"):
        names = [tensor.name for tensor in library.outputs]
        arrays.write_arrays(Path(path), dict(zip(names, outputs, strict=True)))
    elif path:
        arrays.write_array(Path(path), outputs[0])
