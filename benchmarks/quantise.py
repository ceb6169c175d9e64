# SPDX-License-Identifier: Apache-2.0
"""Compares signal to noise and time of ``model.quantize`` with onnxruntime's ``quantize_static``, model by model.

    python benchmarks/quantise.py FOLDER [SAMPLES]

Both get the same samples: parts of scikit-learn's two photographs with text on them, or random bytes.
"""

import logging
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_sample_images

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


def _draw_samples(model: onnx.ModelProto, count: int) -> list[list[np.ndarray]]:
    (name,) = input_names(model)
    kind = next(value.type.tensor_type for value in model.graph.input if value.name == name)
    shape = [size.dim_value if size.dim_value > 0 else _OPEN[axis] for axis, size in enumerate(kind.shape.dim)]
    random = np.random.default_rng(0)
    if len(shape) != 4:
        return [[random.integers(0, 256, shape).astype(np.int32)] for _ in range(count)]
    photos = [Image.fromarray(photo) for photo in load_sample_images().images]
    samples = []
    for number in range(count):
        corner = [int(random.integers(0, limit)) for limit in (300, 100)]
        picture = photos[number % 2].crop((*corner, corner[0] + 300, corner[1] + 300)).resize((shape[3], shape[2]))
        for line in range(0, shape[2], 64):
            text = "".join(random.choice([*"abcdefghkmnprstuvwxyz23456789"], 12))
            ImageDraw.Draw(picture).text(
                (4, line + 8), text, (20, 20, 20), ImageFont.load_default(min(shape[2] // 2, 32))
            )
        pixels = np.asarray(picture.convert("RGB" if shape[1] == 3 else "L"), np.float32) / 127.5 - 1
        samples.append([pixels.reshape(*shape[2:], shape[1]).transpose(2, 0, 1)[np.newaxis]])
    return samples


def _quantize_static(model: onnx.ModelProto, samples: list[list[np.ndarray]]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = max(copy.ir_version, 8)
    if copy.opset_import[0].version < 13:  # Earlier versions have no scales by channel.
        copy = onnx.version_converter.convert_version(copy, 13)
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
        samples = _draw_samples(model, count)
        real, figures = model_outputs(model, samples), []
        for quantiser in (_quantize_static, quantize):
            begin = time.process_time()
            try:
                figures.append(f"{distance(model_outputs(quantiser(model, samples), samples), real).snr_db:.1f}")
            except Exception as error:  # the quantisers may raise anything
                figures.append(f"{type(error).__name__}: {str(error)[:60]}")
        print(f"| {path.stem} | {' | '.join(figures)} | {time.process_time() - begin:.1f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
