# SPDX-License-Identifier: Apache-2.0
"""Compares modelled cycles of MLPerf Tiny's networks with the best published result on the same chip.

``records.yaml`` lists the results, which are from silicon. The modelled cycles are of VIRTUAL boards with a model of
the cycles; docs/time.md has its error. Also writes docs/records.md.

Run: ``UTVM_MODEL_CACHE=FOLDER .venv/bin/python benchmarks/records.py``. Ends with 1 if one is above its record.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import seen
from benchmarks.networks import networks

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "records.md"
HEAD = """# Records

MLPerf Tiny's closed division publishes latencies on silicon. This table has the best one on each chip beside the
cycles of the same network here. **The records are measured on chips; ours are modelled** on virtual boards, with the
errors that [time.md](time.md) lists. `benchmarks/records.py` writes this page. The keyword spotting and anomaly
detection networks are not in it.

| chip | network | record, M cycles | by | here, M modelled cycles | ratio | flash, bytes | RAM, bytes |
|---|---|---|---|---|---|---|---|
"""


def count(board: str, content: bytes) -> dict[str, int]:
    """Run a network once on a virtual board; return its modelled cycles, flash and RAM."""
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(content)
        file.flush()
        command = ["./inv", "model.run", file.name, "--board", board, "--cycles", "--virtual"]
        text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    match = re.search(r"modelled cycles ([\d,]+)  flash_bytes ([\d,]+)  ram_bytes ([\d,]+)", text)
    assert match, text
    names = ("modelled_cycles", "flash_bytes", "ram_bytes")
    return dict(zip(names, (int(number.replace(",", "")) for number in match.groups()), strict=True))


def main() -> int:
    contents = {network.name: network.content for network in networks()}
    rows: list[dict[str, Any]] = []
    for record in yaml.safe_load((Path(__file__).parent / "records.yaml").read_text(encoding="utf-8")):
        cycles = round(record["ms"] * record["mhz"] * 1000)
        row = record | count(record["board"], contents[record["network"]]) | {"record_cycles": cycles}
        rows.append(row | {"ratio": round(row["modelled_cycles"] / cycles, 3)})
        print(rows[-1])
    seen.keep("records", {"rows": rows})
    line = (
        "| {chip} | {network} | {record:.2f} | {by}, {round} | {here:.2f} | {ratio:.2f} | {flash_bytes:,} "
        "| {ram_bytes:,} |"
    )
    lines = [line.format(**row, record=row["record_cycles"] / 1e6, here=row["modelled_cycles"] / 1e6) for row in rows]
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return int(any(row["ratio"] > 1 for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
