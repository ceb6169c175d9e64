# SPDX-License-Identifier: Apache-2.0
"""Compares modelled cycles of MLPerf Tiny's networks with the best published result on the same chip.

``records.yaml`` lists the results, which are from silicon, and the chips: a board, and what differs from it. Modelled
cycles are of VIRTUAL boards with a model of the cycles; docs/time.md has its error. Also writes docs/records.md.

Run: ``UTVM_MODEL_CACHE=FOLDER .venv/bin/python benchmarks/records.py``. Ends with 1 if the best row of a network on
a chip is above the record, or a network reads flash too often with optimize=speed.
"""

import argparse
import itertools
import json
import struct
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import seen
from benchmarks.int8 import check, random_inputs
from benchmarks.networks import networks, read_file
from models.tflite_reference import tflite_micro
from utvm import boards, compiler, firmware
from utvm.boards import Board
from utvm.compiler.target import Goal
from utvm.drivers import attach
from utvm.session import HostDriven
from utvm.virtual.spec import FLASH_BYTES, TimingSpec

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "records.md"
HEAD = """# Records

MLPerf Tiny's closed division publishes latencies on silicon. This table has the best one on each chip beside the
cycles of the same network here. **The records are measured on chips; ours are modelled** on virtual boards.
`benchmarks/records.py` writes this page. [time.md](time.md) lists the errors of the model: 10 % on the STM32L4R5; no
published program was tried on the others, whose ratios are rough.

The networks are the files of mlcommons/tiny, which are not part of the project. With `speed` (`--set optimize=speed`),
start-up code copies weights to RAM as it has room, except on the RA8D1; the table's RAM includes them.

| chip | network | optimize | record, M cycles | by | here, M modelled cycles | ratio | flash, bytes | RAM, bytes |
|---|---|---|---|---|---|---|---|---|
"""
READS = """
Bytes of data that an inference reads from the flash of the virtual {chip}, constants of the program included, beside
the bytes of the weights there:

| network | optimize | weights, bytes | read, bytes | ratio |
|---|---|---|---|---|
"""
READ_CHIP, MOST_READ = "STM32L4R5", 1.5
CHIPS = """
Chips without a board of their own are another board's, with these differences:

| chip | board | model of the cycles |
|---|---|---|
"""


def board_of(chip: dict[str, Any]) -> Board:
    """Return the board of a chip, with what differs from it."""
    board = boards.load(f"{chip['board']}:cycles=model")
    if "timing" not in chip:
        return board
    name = "model" if board.virtual.model else "emulator"
    part = getattr(board.virtual, name)
    part = part.model_copy(update={"timing": TimingSpec.model_validate(chip["timing"])})
    changes = chip.get("memory", {})
    memory = tuple(item.model_copy(update=changes.get(item.name, {})) for item in board.memory)
    virtual = board.virtual.model_copy(update={name: part})
    return board.model_copy(update={"virtual": virtual, "memory": memory, "cpu": chip.get("cpu", board.cpu)})


def count(board: Board, name: str, content: bytes, goal: Goal) -> dict[str, int]:
    """Run a network on a virtual board; return its modelled cycles, flash and RAM, and bytes read from flash.

    Raises:
        SystemExit: an output differs from TFLite Micro's in a single bit.
    """
    options = compiler.CompileOptions(replace(board.target, goal=goal))
    library = firmware.compile_for(board, compiler.from_tflite(content, name), options)
    image = firmware.build(board, [library])
    samples = random_inputs(library, 1)
    with (
        tempfile.TemporaryDirectory() as logs,
        attach(board, "virtual", log_directory=Path(logs)) as connection,
        HostDriven(connection, image) as session,
    ):
        run = session.run(library.name, samples[0])
        connection.write_memory(board.selected_wait, struct.pack("<I", FLASH_BYTES))
        read = session.run(library.name, samples[0]).count
    check(name, board.name, [list(run.outputs)], tflite_micro(content, samples))
    return {
        "modelled_cycles": run.count,
        "flash_bytes": image.flash_bytes,
        "ram_bytes": image.ram_bytes,
        "weights_bytes": library.weights_bytes,
        "read_bytes": read,
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--chip", action="append", help="measure only this one; the others keep their figures")
    chosen = options.parse_args().chip
    before = json.loads((seen.FOLDER / "records.json").read_text(encoding="utf-8"))["figures"]["rows"]
    contents = {network.name: network.content for network in networks()}
    contents |= {"kws": read_file("kws_ref_model.tflite"), "ad": read_file("ad01_int8.tflite")}
    data = yaml.safe_load((Path(__file__).parent / "records.yaml").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = []
    goals: tuple[Goal, ...] = ("balance", "speed")
    for result, goal in itertools.product(data["records"], goals):
        record = result | {"optimize": goal}
        if chosen and record["chip"] not in chosen:
            rows += [row for row in before if record.items() <= row.items()][:1]
            continue
        chip = data["chips"][record["chip"]]
        cycles = round(record["ms"] * chip["mhz"] * 1000)
        figures = count(board_of(chip), record["network"], contents[record["network"]], goal)
        rows.append(
            record | figures | {"record_cycles": cycles, "ratio": round(figures["modelled_cycles"] / cycles, 3)}
        )
        print(rows[-1], flush=True)
    seen.keep("records", {"rows": rows})
    line = (
        "| {chip} | {network} | {optimize} | {record:.2f} | {by}, {round} | {here:.2f} | {ratio:.2f} | {flash_bytes:,} "
        "| {ram_bytes:,} |"
    )
    lines = []
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        cycles = {"record": row["record_cycles"] / 1e6, "here": row["modelled_cycles"] / 1e6}
        lines.append(line.format(**row, **cycles))
        place = (row["chip"], row["network"])
        best[place] = min(best.get(place, row["ratio"]), row["ratio"])
    chips = [
        f"| {name} | {chip['board']} | {chip['model']} |" for name, chip in data["chips"].items() if "model" in chip
    ]
    _, *sections = PAGE.read_text(encoding="utf-8").partition("\n## ")  # Those of mcunet.py.
    read = [row | {"read": row["read_bytes"] / row["weights_bytes"]} for row in rows if row["chip"] == READ_CHIP]
    form = "| {network} | {optimize} | {weights_bytes:,} | {read_bytes:,} | {read:.2f} |\n"
    text = HEAD + "\n".join(lines) + "\n" + CHIPS + "\n".join(chips) + "\n"
    text += READS.format(chip=READ_CHIP) + "".join(form.format(**row) for row in read)
    PAGE.write_text(text + "".join(sections), encoding="utf-8")
    too_many = any(row["read"] > MOST_READ for row in read if row["optimize"] == "speed")
    return int(too_many or any(ratio > 1 for ratio in best.values()))


if __name__ == "__main__":
    raise SystemExit(main())
