# SPDX-License-Identifier: Apache-2.0
"""Tuning: what it finds for a float CNN of CIFAR-10's shape, what a candidate costs, and what a board more brings.

The network has random weights: any have the same speed. A candidate's seconds are those of the whole search,
on the virtual MPS2 AN500. The boards of the tracker are processes on this computer, which links the candidates of
both. Each waits 20 ms before it answers a request, as one behind a slow line does: what boards compute, and two
processors share, is not what is measured.

Run: ``.venv/bin/python benchmarks/tuning.py``. Ends with 1 if the network is not twice as fast.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import seen
from utvm.base.process.run import free_port
from utvm.paths import ROOT

_DIGITS = ROOT / "models" / "digits"
_TRACKER = "import sys, time; from tvm.rpc.tracker import Tracker; p = int(sys.argv[1]); "
_TRACKER += "t = Tracker('127.0.0.1', port=p, port_end=p + 1, silent=True); time.sleep(3600)"
_SLOW = """
import time
from utvm.__main__ import main
from utvm.session.link import Link
request = Link.request
def slow(*arguments):
    time.sleep(0.02)
    return request(*arguments)
Link.request = slow
main()
"""
_TRIALS = 24


def network() -> bytes:
    """Return a float CNN of CIFAR-10's shape: three convolutions of 5 by 5, pools, a dense layer."""
    generator = np.random.default_rng(0)
    nodes, weights, last = [], [], "image"
    for number, (outputs, inputs) in enumerate(((32, 3), (32, 32), (64, 32))):
        kernel = generator.standard_normal((outputs, inputs, 5, 5)).astype("float32") * 0.05
        weights += [numpy_helper.from_array(kernel, f"w{number}")]
        weights += [numpy_helper.from_array(generator.standard_normal(outputs).astype("float32"), f"b{number}")]
        inputs_of = [last, f"w{number}", f"b{number}"]
        nodes += [helper.make_node("Conv", inputs_of, [f"conv{number}"], pads=[2, 2, 2, 2])]
        nodes += [helper.make_node("Relu", [f"conv{number}"], [f"relu{number}"])]
        last = f"pool{number}"
        nodes += [helper.make_node("MaxPool", [f"relu{number}"], [last], kernel_shape=[2, 2], strides=[2, 2])]
    weights += [numpy_helper.from_array(generator.standard_normal((1024, 10)).astype("float32") * 0.05, "wd")]
    nodes += [helper.make_node("Flatten", [last], ["flat"]), helper.make_node("MatMul", ["flat", "wd"], ["scores"])]
    given = helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, 32, 32))
    made = helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, 10))
    graph = helper.make_graph(nodes, "cifar_float", [given], [made], weights)
    return bytes(onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


def tuned(model: Path, board: str, trials: int, folder: Path, *words: str) -> dict[str, Any]:
    """Tune a model into a new log, and return what the command found."""
    log = folder / f"{board}-{len(list(folder.iterdir()))}.jsonl"
    command = [sys.executable, "-m", "utvm", "model.tune", model, "--board", board, "--trials", str(trials)]
    done = subprocess.run(
        [*command, "--log", log, "--json", *words], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextlib.contextmanager
def serving(count: int, folder: Path) -> Iterator[str]:
    """Have a tracker and so many boards there; yields the tracker's address."""
    port = free_port()
    commands = [[sys.executable, "-c", _TRACKER, str(port)]]
    serve = [sys.executable, "-c", _SLOW, "board.serve", str(_DIGITS / "digits_int8.tflite"), "--board", "host"]
    commands += [[*serve, "--port", "0", "--tracker", f"127.0.0.1:{port}"]] * count
    with contextlib.ExitStack() as stack:
        logs = [folder / f"serving-{count}-{number}.log" for number in range(len(commands))]
        for command, log in zip(commands, logs, strict=True):
            file = stack.enter_context(log.open("w"))
            # TVM's tracker has a process of its own, which outlives it: all of a group are ended.
            process = stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, start_new_session=True)
            )
            stack.callback(os.killpg, process.pid, signal.SIGTERM)
        while not all(re.search("serving on", log.read_text()) for log in logs[1:]):
            time.sleep(0.1)
        time.sleep(5)  # The tracker hears of them now and then.
        yield f"127.0.0.1:{port}"


def main() -> int:
    """Measure, print and keep what was seen."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "cifar_float.onnx"
        model.write_bytes(network())
        found = tuned(model, "mps2-an500", 48, folder)
        small = tuned(_DIGITS / "digits.onnx", "mps2-an500", 32, folder)
        rates = []
        for count in (1, 2):
            with serving(count, folder) as tracker:
                each = tuned(_DIGITS / "digits.onnx", "host", _TRIALS, folder, "--tracker", tracker)
                rates.append(60 * each["candidates"] / each["seconds"])
    figures = {
        "before": found["before"],
        "tuned": found["tuned"],
        "candidates": found["candidates"],
        "a_candidate_s": [round(each["seconds"] / each["candidates"], 2) for each in (small, found)],
        "a_minute": [round(rate) for rate in rates],
        "second_board": round(rates[1] / rates[0], 2),
    }
    seen.keep("tuning", figures)
    print(json.dumps(figures, indent=2))
    met = 2 * found["tuned"] <= found["before"]
    print(f"{'met' if met else 'MISSED'}: a float CNN twice as fast, bit for bit the same")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
