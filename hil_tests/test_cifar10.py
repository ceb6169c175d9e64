# SPDX-License-Identifier: Apache-2.0
"""The CIFAR-10 CNN on the board: its logits equal those of TFLite Micro's reference kernels, bit for bit.

A sample takes some 13 million instructions, a quarter of a second on a virtual board, so there are only a few.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from models.cifar10_cnn.network import IMAGE, image_inputs, network, random_parameters
from models.tflite_reference import tflite_micro
from utvm.compiler import Library, from_tflite
from utvm.firmware import Firmware
from utvm.hil.results import ModelResult
from utvm.session import Session

_SAMPLES = 5
_MACS = 12_298_240


@pytest.mark.parametrize(("executor", "name"), [("aot", "cifar10_cnn"), ("graph", "cifar10_cnn_graph")])
def test_logits_equal_the_reference_kernels(
    executor: str,
    name: str,
    compile_for_board: Callable[..., Library],
    firmware: Callable[[Sequence[Library]], Firmware],
    session: Callable[[Firmware], Session],
    record_model: Callable[..., ModelResult],
) -> None:
    parameters = random_parameters()
    content = network(parameters)
    images = np.random.default_rng(1).integers(0, 256, (_SAMPLES, *IMAGE), np.uint8)
    samples = [[image[np.newaxis]] for image in image_inputs(parameters, images)]
    expected = tflite_micro(content, samples)
    assert len({logits.tobytes() for (logits,) in expected}) == _SAMPLES, "the samples tell nothing apart"
    library = compile_for_board(from_tflite(content, name), executor=executor)
    assert sum(call.macs for call in library.calls) == _MACS
    image = firmware([library])
    running = session(image)
    runs = [running.run(name, sample) for sample in samples]
    for number, (run, (logits,)) in enumerate(zip(runs, expected, strict=True)):
        assert run.outputs[0].tobytes() == logits.tobytes(), (
            f"sample {number}: {run.outputs[0]} on the board, {logits} by the reference kernels"
        )
    label = "graph" if executor == "graph" else "ahead of time"
    record_model(name, image, runs, executor=f"{running.executor}, {label}")
