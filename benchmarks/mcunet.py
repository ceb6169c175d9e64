# SPDX-License-Identifier: Apache-2.0
"""Compares networks of MCUNet's model zoo on an STM32H743 with what X-CUBE-AI and TinyEngine need there.

``mcunet.yaml`` has the published architectures, rebuilt with random weights, and the published results, which are from
silicon. The time here is modelled, on a VIRTUAL board; RAM includes the stack, flash the runtime. Also writes its
section of docs/records.md.

Run: ``.venv/bin/python -m benchmarks.mcunet``.
"""

from pathlib import Path
from typing import Any

import yaml

from benchmarks import compile as architectures
from benchmarks import records, seen
from utvm.compiler.names import library_name
from utvm.compiler.target import Goal

DATA = Path(__file__).with_suffix(".yaml")
HEAD = """
## TinyEngine's table

Networks of MCUNet's model zoo on an STM32H743 at 480 MHz (`benchmarks/mcunet.py`), beside what TinyEngine's README.md
publishes for X-CUBE-AI 7.3.0 and TinyEngine. **Their times are measured on the chip; ours are modelled**, with a
rough model of its flash. The architectures are published, the weights here random; the other files of the zoo are not
here. Our RAM includes the stack and the input, our flash the runtime. `flash`: with `--set optimize=flash`, which keeps
weights as bytes and scales in 8 bytes a channel: RAM, flash and modelled time are below both. By default flash is above
both, since filters of depthwise convolutions take 16 bits a weight, those larger than 3x3 of stride 1 twice.

| network | X-CUBE-AI: ms, RAM kB, flash kB | TinyEngine | here | here, `flash` |
|---|---|---|---|---|
"""
GOALS: tuple[Goal, ...] = ("balance", "flash")


def content_of(network: dict[str, Any]) -> bytes:
    """Return a network with random weights as a TensorFlow Lite file."""
    layers = architectures.Network((network["resolution"], network["resolution"], 3))
    layers.convolution(network["stem"], (3, 3), 2)
    for number, (channels, size, outputs, stride) in enumerate(network["rows"]):
        before, depth = layers.last, layers.shape[2]
        if number:
            layers.convolution(channels)
        layers.convolution(0, (size, size), stride)
        layers.convolution(outputs, activation="NONE")
        if number and stride == 1 and depth == outputs:
            layers.addition(before)
    if "mix" in network:
        layers.convolution(network["mix"])
    return layers.content(network["classes"])


def section(rows: list[dict[str, Any]]) -> str:
    """Return the section of docs/records.md."""
    lines = []
    for row in rows:
        published = [
            "{ms}, {ram_kb}, {flash_kb}".format(**row["results"][name]) for name in ("X-CUBE-AI", "TinyEngine")
        ]
        here = [
            f"{item['modelled_ms']:.1f}, {item['ram_bytes'] / 1000:.0f}, {item['flash_bytes'] / 1000:.0f}"
            for item in (row[goal] for goal in GOALS)
        ]
        lines.append(f"| {' | '.join([row['network'], *published, *here])} |")
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    board, rows = records.board_of(data["chip"]), []
    for name, network in data["networks"].items():
        content = content_of(network)
        figures: dict[Goal, dict[str, Any]] = {
            goal: records.count(board, library_name(name), content, goal=goal) for goal in GOALS
        }
        for item in figures.values():
            item["modelled_ms"] = round(item["modelled_cycles"] / data["chip"]["mhz"] / 1000, 1)
        rows.append({"network": name, "results": network["results"], **figures})
        print(rows[-1], flush=True)
    seen.keep("mcunet", {"rows": rows})
    page = records.PAGE.read_text(encoding="utf-8").partition(HEAD.splitlines()[1])[0].rstrip("\n") + "\n"
    records.PAGE.write_text(page + section(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
