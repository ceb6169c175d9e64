# SPDX-License-Identifier: Apache-2.0
"""Compares networks of MCUNet's model zoo on an STM32H743 with what X-CUBE-AI and TinyEngine need there.

``mcunet.yaml`` has the published architectures, rebuilt with random weights, and the published results, which are from
silicon; six networks are measured with their own weights, too. The time here is modelled, on a VIRTUAL board; RAM
includes the stack, flash the runtime. Also writes its section of docs/records.md.

Run: ``UTVM_MODEL_CACHE=FOLDER .venv/bin/python -m benchmarks.mcunet``.
"""

from pathlib import Path
from typing import Any

import yaml

from benchmarks import compile as architectures
from benchmarks import records, seen
from benchmarks.networks import read_file
from utvm.compiler.names import library_name
from utvm.compiler.target import Goal
from utvm.errors import DoesNotFitError

DATA = Path(__file__).with_suffix(".yaml")
HEAD = """
## TinyEngine's table

The 11 networks of TinyEngine's README.md, and one of an older version of it, on an STM32H743 at 480 MHz
(`benchmarks/mcunet.py`), beside its results of X-CUBE-AI 7.3.0 and TinyEngine. **Their times are measured on the chip;
ours are modelled**, with a rough model of its flash. The architectures are published, the weights here random; `file`
is a network's own file, which is not part of the project. Our RAM includes the stack and the input, our flash the
runtime.

`flash`: with `--set optimize=flash`, which keeps weights as bytes and scales in 8 bytes a channel. By default, weights
that are copied to RAM have 16 bits, and scales 12 bytes or more. Bold: not below both published figures. The README
does not say whether its kB has 1,000 bytes, as here, or 1,024; then, with `flash`, all but proxyless-w0.3-r176 are
below. Weights, biases and a scale a channel take 796,080 bytes there, before any code.

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
        results = row["results"]
        cells = ["{ms}, {ram_kb}, {flash_kb}".format(**results[name]) for name in ("X-CUBE-AI", "TinyEngine")]
        cells += [_cell(row[goal], list(results.values())) for goal in GOALS]
        lines.append(f"| {' | '.join([row['network'], *cells])} |")
    return HEAD + "\n".join(lines) + "\n"


def _cell(item: dict[str, Any] | None, results: list[dict[str, int]]) -> str:
    if item is None:
        return "**does not fit**"
    numbers = {"ms": item["modelled_ms"], "ram_kb": item["ram_bytes"] / 1000, "flash_kb": item["flash_bytes"] / 1000}
    texts = []
    for unit, number in numbers.items():
        text = f"{number:.1f}" if unit == "ms" else f"{number:.0f}"
        texts.append(text if all(number < result[unit] for result in results) else f"**{text}**")
    return ", ".join(texts)


def main() -> None:
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    board, rows = records.board_of(data["chip"]), []
    networks = [(name, network, content_of(network)) for name, network in data["networks"].items()]
    networks += [
        (f"{name}, `file`", network, read_file(network["file"]))
        for name, network in data["networks"].items()
        if "file" in network
    ]
    for name, network, content in networks:
        figures: dict[Goal, dict[str, Any] | None] = {}
        for goal in GOALS:
            try:
                item: dict[str, Any] = records.count(board, library_name(name), content, goal=goal)
            except DoesNotFitError:
                figures[goal] = None
                continue
            item["modelled_ms"] = round(item["modelled_cycles"] / data["chip"]["mhz"] / 1000, 1)
            figures[goal] = item
        rows.append({"network": name, "results": network["results"], **figures})
        print(rows[-1], flush=True)
    seen.keep("mcunet", {"rows": rows})
    page = records.PAGE.read_text(encoding="utf-8").partition(HEAD.splitlines()[1])[0].rstrip("\n") + "\n"
    records.PAGE.write_text(page + section(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
