# SPDX-License-Identifier: Apache-2.0
"""Signal to noise and time of ``model.quantize`` beside onnxruntime's ``quantize_static``, over a folder of models.

    python benchmarks/quantise.py FOLDER [SAMPLES]

Both get the same samples: smooth random pictures in the shape of the one input; open sizes are 1, then 224.
"""

import logging
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

from utvm.quantize import input_names, model_outputs, quantize
from utvm.session.evaluation import distance

_OPEN = {0: 1, 1: 3, 2: 224, 3: 224}


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, name, samples):
        self._feeds = iter([{name: sample[0]} for sample in samples])

    def get_next(self):
        return next(self._feeds, None)


def _samples(model: onnx.ModelProto, count: int) -> list[list[np.ndarray]]:
    (name,) = input_names(model)
    kind = next(value.type.tensor_type for value in model.graph.input if value.name == name)
    shape = [max(size.dim_value, 0) or _OPEN[place] for place, size in enumerate(kind.shape.dim)]
    random = np.random.default_rng(0)
    noise = random.normal(size=(count, *shape))
    for axis in range(3, noise.ndim):
        noise = sum(np.roll(noise, step, axis) for step in range(8)) / np.sqrt(8)
    if kind.elem_type != onnx.TensorProto.FLOAT:
        return [[random.integers(0, 256, shape).astype(np.int32)] for _ in range(count)]
    return [[sample.astype(np.float32)] for sample in noise]


def _theirs(model: onnx.ModelProto, samples: list[list[np.ndarray]]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = max(copy.ir_version, 8)
    with tempfile.TemporaryDirectory() as folder:
        quantize_static(
            copy, f"{folder}/q.onnx", _Reader(input_names(model)[0], samples), per_channel=True,
            activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        return onnx.load(f"{folder}/q.onnx")


def main(folder: str, count: int = 8) -> None:
    logging.disable(logging.WARNING)
    print("| model | theirs, dB | ours, dB | ours, s |\n|---|---|---|---|")
    for path in sorted(Path(folder).glob("*.onnx")):
        model = onnx.load(path)
        samples = _samples(model, count)
        real, figures = model_outputs(model, samples), []
        for quantiser in (_theirs, quantize):
            begin = time.process_time()
            try:
                figures.append(f"{distance(model_outputs(quantiser(model, samples), samples), real).snr_db:.1f}")
            except Exception as error:  # whatever the two raise
                figures.append(f"{type(error).__name__}: {str(error)[:60]}")
        print(f"| {path.stem} | {' | '.join(figures)} | {time.process_time() - begin:.1f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
