# SPDX-License-Identifier: Apache-2.0
"""Compares modelled cycles of MLPerf Tiny's networks with the best published result on the same chip.

``records.yaml`` lists the results, which are from silicon, and the chips: a board, and what differs from it. Modelled
cycles are of VIRTUAL boards with a model of the cycles; docs/time.md has its error. Also writes docs/records.md.

Run: ``UTVM_MODEL_CACHE=FOLDER .venv/bin/python benchmarks/records.py``. Ends with 1 if the best row of a network on
a chip is above the record.
"""

import argparse
import json
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
from utvm.drivers import attach
from utvm.session import HostDriven
from utvm.virtual.spec import TimingSpec

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "records.md"
HEAD = """# Records

MLPerf Tiny's closed division publishes latencies on silicon. This table has the best one on each chip beside the
cycles of the same network here. **The records are measured on chips; ours are modelled** on virtual boards.
`benchmarks/records.py` writes this page. [time.md](time.md) lists the errors of the model: 10 % on the STM32L4R5; no
published program was tried on the others, whose ratios are rough.

The networks are the files of mlcommons/tiny, which are not part of the project. `weights in RAM`: with
`--set weights-in-ram`, start-up code copies the weights; the table's RAM includes them.

| chip | network | record, M cycles | by | here, M modelled cycles | ratio | flash, bytes | RAM, bytes |
|---|---|---|---|---|---|---|---|
"""
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
    kinds = chip.get("memory", {})
    memory = tuple(item.model_copy(update={"kind": kinds.get(item.name, item.kind)}) for item in board.memory)
    virtual = board.virtual.model_copy(update={name: part})
    return board.model_copy(update={"virtual": virtual, "memory": memory, "cpu": chip.get("cpu", board.cpu)})


def count(board: Board, name: str, content: bytes, **changes: Any) -> dict[str, int]:
    """Run a network once on a virtual board; return its modelled cycles, flash and RAM.

    Args:
        changes: fields of the board's target that differ.

    Raises:
        SystemExit: an output differs from TFLite Micro's in a single bit.
    """
    target = replace(board.target, **changes)
    library = compiler.compile_model(compiler.from_tflite(content, name), target=target)
    image = firmware.build(board, [library])
    samples = random_inputs(library, 1)
    with (
        tempfile.TemporaryDirectory() as logs,
        attach(board, "virtual", log_directory=Path(logs)) as connection,
        HostDriven(connection, image) as session,
    ):
        run = session.run(library.name, samples[0])
    check(name, board.name, [list(run.outputs)], tflite_micro(content, samples))
    return {"modelled_cycles": run.count, "flash_bytes": image.flash_bytes, "ram_bytes": image.ram_bytes}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--chip", action="append", help="measure only this one; the others keep their figures")
    chosen = options.parse_args().chip
    before = json.loads((seen.FOLDER / "records.json").read_text(encoding="utf-8"))["figures"]["rows"]
    contents = {network.name: network.content for network in networks()}
    contents |= {"kws": read_file("kws_ref_model.tflite"), "ad": read_file("ad01_int8.tflite")}
    data = yaml.safe_load((Path(__file__).parent / "records.yaml").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = []
    for record in data["records"]:
        if chosen and record["chip"] not in chosen:
            rows += [row for row in before if record.items() <= row.items()][:1]
            continue
        chip = data["chips"][record["chip"]]
        cycles = round(record["ms"] * chip["mhz"] * 1000)
        figures = count(
            board_of(chip),
            record["network"],
            contents[record["network"]],
            weights_in_ram=record.get("weights_in_ram", 0),
        )
        rows.append(
            record | figures | {"record_cycles": cycles, "ratio": round(figures["modelled_cycles"] / cycles, 3)}
        )
        print(rows[-1], flush=True)
    seen.keep("records", {"rows": rows})
    line = (
        "| {chip} | {network}{where} | {record:.2f} | {by}, {round} | {here:.2f} | {ratio:.2f} | {flash_bytes:,} "
        "| {ram_bytes:,} |"
    )
    lines = []
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        where = ", weights in RAM" if "weights_in_ram" in row else ""
        cycles = {"record": row["record_cycles"] / 1e6, "here": row["modelled_cycles"] / 1e6}
        lines.append(line.format(**row, **cycles, where=where))
        place = (row["chip"], row["network"])
        best[place] = min(best.get(place, row["ratio"]), row["ratio"])
    chips = [
        f"| {name} | {chip['board']} | {chip['model']} |" for name, chip in data["chips"].items() if "model" in chip
    ]
    _, *sections = PAGE.read_text(encoding="utf-8").partition("\n## ")  # Those of mcunet.py.
    text = HEAD + "\n".join(lines) + "\n" + CHIPS + "\n".join(chips) + "\n"
    PAGE.write_text(text + "".join(sections), encoding="utf-8")
    return int(any(ratio > 1 for ratio in best.values()))


if __name__ == "__main__":
    raise SystemExit(main())
