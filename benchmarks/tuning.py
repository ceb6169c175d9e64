# SPDX-License-Identifier: Apache-2.0
"""Measures tuning: its result for a float CNN of CIFAR-10's shape, a candidate's cost, and the gain of a second board.

The network has random weights, which do not affect its speed. A candidate's seconds are those of the complete search,
on the virtual MPS2 AN500. The boards of the tracker are processes on this computer, which links the candidates of both.
Each waits 20 ms before it answers a request, as behind a slow line, because the boards share two processors, and their
computing is not measured.

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
from utvm.base.process import free_port
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
        operands = [last, f"w{number}", f"b{number}"]
        nodes += [helper.make_node("Conv", operands, [f"conv{number}"], pads=[2, 2, 2, 2])]
        nodes += [helper.make_node("Relu", [f"conv{number}"], [f"relu{number}"])]
        last = f"pool{number}"
        nodes += [helper.make_node("MaxPool", [f"relu{number}"], [last], kernel_shape=[2, 2], strides=[2, 2])]
    weights += [numpy_helper.from_array(generator.standard_normal((1024, 10)).astype("float32") * 0.05, "wd")]
    nodes += [helper.make_node("Flatten", [last], ["flat"]), helper.make_node("MatMul", ["flat", "wd"], ["scores"])]
    input_info = helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, 32, 32))
    output_info = helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, 10))
    graph = helper.make_graph(nodes, "cifar_float", [input_info], [output_info], weights)
    return bytes(onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


def tune(model: Path, board: str, trials: int, folder: Path, *options: str) -> dict[str, Any]:
    """Tune a model into a new log, and return the command's result."""
    log = folder / f"{board}-{len(list(folder.iterdir()))}.jsonl"
    command = [sys.executable, "-m", "utvm", "model.tune", model, "--board", board, "--trials", str(trials)]
    completed = subprocess.run(
        [*command, "--log", log, "--json", *options], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True
    )
    result: dict[str, Any] = json.loads(completed.stdout)
    return result


@contextlib.contextmanager
def serving(count: int, folder: Path) -> Iterator[str]:
    """Run a tracker with this many boards; yield the tracker's address."""
    port = free_port()
    commands = [[sys.executable, "-c", _TRACKER, str(port)]]
    serve = [sys.executable, "-c", _SLOW, "board.serve", str(_DIGITS / "digits_int8.tflite"), "--board", "host"]
    commands += [[*serve, "--port", "0", "--tracker", f"127.0.0.1:{port}"]] * count
    with contextlib.ExitStack() as stack:
        logs = [folder / f"serving-{count}-{number}.log" for number in range(len(commands))]
        for command, log in zip(commands, logs, strict=True):
            file = stack.enter_context(log.open("w"))
            # TVM's tracker starts a process, which outlives it: the complete group is ended.
            process = stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, start_new_session=True)
            )
            stack.callback(os.killpg, process.pid, signal.SIGTERM)
        while not all(re.search("serving on", log.read_text()) for log in logs[1:]):
            time.sleep(0.1)
        time.sleep(5)  # The boards register with the tracker periodically.
        yield f"127.0.0.1:{port}"


def main() -> int:
    """Measure, print and store the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "cifar_float.onnx"
        model.write_bytes(network())
        large = tune(model, "mps2-an500", 48, folder)
        small = tune(_DIGITS / "digits.onnx", "mps2-an500", 32, folder)
        rates = []
        for count in (1, 2):
            with serving(count, folder) as tracker:
                result = tune(_DIGITS / "digits.onnx", "host", _TRIALS, folder, "--tracker", tracker)
                rates.append(60 * result["candidates"] / result["seconds"])
    figures = {
        "before": large["before"],
        "tuned": large["tuned"],
        "candidates": large["candidates"],
        "a_candidate_s": [round(run["seconds"] / run["candidates"], 2) for run in (small, large)],
        "a_minute": [round(rate) for rate in rates],
        "second_board": round(rates[1] / rates[0], 2),
    }
    seen.keep("tuning", figures)
    print(json.dumps(figures, indent=2))
    met = 2 * large["tuned"] <= large["before"]
    print(f"{'met' if met else 'MISSED'}: a float CNN twice as fast, bit for bit the same")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
