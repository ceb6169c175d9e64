# SPDX-License-Identifier: Apache-2.0
"""Int8 layers of public networks on the cores: instructions beside CMSIS-NN's; outputs are compared bit for bit.

    .venv/bin/python benchmarks/layers.py [--core NAME]...

``layers.yaml`` lists the layers, with CMSIS-NN's instructions, counted once. The weights are random. Networks are read
from the folder that ``UTVM_MODEL_CACHE`` names. Also writes docs/layers.md. Ends with 1 if a layer takes more
instructions than CMSIS-NN's.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import seen
from benchmarks.architectures import Chain
from benchmarks.cores import CORES, Core
from benchmarks.int8 import check, random_inputs
from benchmarks.networks import read_file
from models.tflite_reference import tflite_micro
from utvm import boards, compiler, firmware
from utvm.compiler import Library
from utvm.drivers import attach
from utvm.session import HostDriven

FILE = Path(__file__).parent / "layers.yaml"
PAGE = Path(__file__).parent.parent / "docs" / "layers.md"
HEAD = """# Layers

Instructions of this compiler's int8 layers, as a ratio of CMSIS-NN's, on emulated cores: layers of public networks with
random weights. `benchmarks/layers.py` writes this page; every output equals TensorFlow Lite Micro's, bit for bit.
`benchmarks/layers.yaml` has CMSIS-NN's counts and says how they were taken; those of a whole network are the sum over
its layers, without softmax, which ours includes. Instructions are not time.

"""
_IMAGE_BYTES = 200_000  # Bytes of weights in an image: one core's code memory is small.


def content_of(layer: str) -> bytes:
    """Return a network of one layer, as a TensorFlow Lite file; or such a file, by its name."""
    kind, *words = layer.split()
    if layer.endswith(".tflite"):
        return read_file(layer)
    if kind == "lstm":
        steps, depth, units = map(int, (*words[0].split("x"), words[1]))
        chain = Chain((1, steps, depth), -3, 1 / 128)
        chain.lstm(units)
        return chain.finish()
    if kind == "dense":
        inputs, outputs = map(int, words)
        chain = Chain((1, inputs), 3)
        chain.layer("FULLY_CONNECTED", (outputs, inputs), (1, outputs), relu=True)
        return chain.finish()
    height, width, channels = map(int, words[0].split("x"))
    rows, columns = map(int, words[1].split("x"))
    stride, padding, outputs = int(words[3]), words[4].upper(), int(words[5])
    more = dict(zip(words[6::2], words[7::2], strict=True))
    dilation = [int(item) for item in more.get("dilation", "1x1").split("x")]
    spans = [(rows - 1) * dilation[0] + 1, (columns - 1) * dilation[1] + 1]
    lost = [span - 1 if padding == "VALID" else 0 for span in spans]
    shape = (1, -(-(height - lost[0]) // stride), -(-(width - lost[1]) // stride), outputs)
    options: dict[str, Any] = {"padding": padding, "stride_h": stride, "stride_w": stride}
    options |= {"dilation_h_factor": dilation[0], "dilation_w_factor": dilation[1]}
    chain = Chain((1, height, width, channels), -3)
    if kind == "depthwise":
        options["depth_multiplier"] = outputs // channels
        chain.layer("DEPTHWISE_CONV_2D", (1, rows, columns, outputs), shape, relu=True, **options)
    else:
        depth = channels // int(more.get("groups", 1))
        chain.layer("CONV_2D", (outputs, rows, columns, depth), shape, relu=True, **options)
    return chain.finish()


def measure(core: Core, layers: list[str]) -> list[int]:
    """Return the instructions of layers on a core.

    Raises:
        SystemExit: an output differs from TFLite Micro's in a single bit.
    """
    board = boards.load(core.board)
    board = board.model_copy(update={"cpu": core.cpu or board.cpu})
    contents = {f"layer{number}": content_of(layer) for number, layer in enumerate(layers)}
    libraries = [
        compiler.compile_model(compiler.from_tflite(content, name), name=name, target=board.target)
        for name, content in contents.items()
    ]
    counts = []
    for group in _groups(libraries):
        image = firmware.build(board, group)
        with (
            tempfile.TemporaryDirectory() as logs,
            attach(board, "virtual", log_directory=Path(logs)) as connection,
            HostDriven(connection, image) as session,
        ):
            for library in group:
                samples = random_inputs(library, 1)
                run = session.run(library.name, samples[0])
                check(library.name, core.name, [list(run.outputs)], tflite_micro(contents[library.name], samples))
                counts.append(run.count)
    return counts


def _groups(libraries: list[Library]) -> Iterator[list[Library]]:
    group: list[Library] = []
    for library in libraries:
        if group and sum(item.weights_bytes for item in (*group, library)) > _IMAGE_BYTES:
            yield group
            group = []
        group.append(library)
    yield group


def page(layers: list[dict[str, Any]], networks: list[dict[str, Any]], ratios: dict[str, list[float]]) -> str:
    """Return the page's text: a row for each layer and network, a column for each core."""
    names = list(ratios)
    lines = [f"| layer | of | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for number, layer in enumerate(layers):
        cells = " | ".join(f"{ratios[name][number]:.2f}" for name in names)
        lines.append(f"| {layer['layer']} | {layer['of']} | {cells} |")
    for title, function in (("median", statistics.median), ("largest", max)):
        cells = " | ".join(f"{function(ratios[name][: len(layers)]):.2f}" for name in names)
        lines.append(f"| {title} | | {cells} |")
    for number, network in enumerate(networks, len(layers)):
        cells = " | ".join(f"{ratios[name][number]:.2f}" for name in names)
        lines.append(f"| {network['layer']}, whole | {network['of']} | {cells} |")
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    data = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--core", action="append", choices=data["cores"], help="only this one")
    arguments = options.parse_args()
    layers, networks = data["layers"], data["networks"]
    ratios: dict[str, list[float]] = {}
    for position, name in enumerate(data["cores"]):
        if name not in (arguments.core or [name]):
            continue
        (core,) = (core for core in CORES if core.name == name)
        rows = [*layers, *networks]
        counts = measure(core, [row["layer"] for row in rows])
        ratios[name] = [round(count / row["cmsis_nn"][position], 3) for count, row in zip(counts, rows, strict=True)]
        own = ratios[name][: len(layers)]
        print(f"{name}: median {statistics.median(own):.2f}, largest {max(own):.2f}", flush=True)
        for count, ratio, layer in sorted(zip(counts, ratios[name], rows, strict=True), key=lambda row: -row[1])[:8]:
            print(f"  {ratio:.2f} {count:,} {layer['layer']}")
    if not arguments.core:
        PAGE.write_text(page(layers, networks, ratios), encoding="utf-8")
        seen.keep("layers", {name: own[: len(layers)] for name, own in ratios.items()})
    return int(any(ratio > 1 for every in ratios.values() for ratio in every))


if __name__ == "__main__":
    raise SystemExit(main())
