# SPDX-License-Identifier: Apache-2.0
"""Wake-word detection from raw sound: a streaming preprocessor and a classifier, chained on a board.

    python examples/wake_word.py audio_preprocessor_int8.tflite micro_speech_quantized.tflite yes_1000ms.wav

The first model turns a frame of samples into features and keeps its noise estimate between frames;
the second model classifies the features of one second. Both run on the board; the host cuts the sound into frames.
The files above are in github.com/tensorflow/tflite-micro, tensorflow/lite/micro/examples/micro_speech.
"""

import argparse
import wave
from pathlib import Path

import numpy as np
import numpy.typing as npt

import utvm
from utvm.session.open_board import OpenBoard


def listen(
    board: OpenBoard, preprocessor: Path, classifier: Path, samples: npt.NDArray[np.int16], hop: int
) -> npt.NDArray[np.generic]:
    """Scores of the classifier for a sound; ``hop`` is the number of samples between the starts of two frames."""
    frames = board.load(preprocessor)
    (frame,) = frames.inputs
    size = frame.shape[-1]
    starts = range(0, len(samples) - size + 1, hop)
    features = [frames.run(samples[start : start + size].reshape(frame.shape)).outputs[0] for start in starts]
    network = board.load(classifier)
    (spectrum,) = network.inputs
    return network.run(np.stack(features).reshape(spectrum.shape)).outputs[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("preprocessor", "classifier", "sound"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--board", default="stm32f746")
    parser.add_argument("--labels", default="silence,unknown,yes,no")
    arguments = parser.parse_args()
    with wave.open(str(arguments.sound)) as sound:
        hop = sound.getframerate() // 50
        samples = np.frombuffer(sound.readframes(sound.getnframes()), np.int16)
    with utvm.open(arguments.board) as board:
        scores = listen(board, arguments.preprocessor, arguments.classifier, samples, hop).ravel()
        print(f"{arguments.labels.split(',')[int(scores.argmax())]}, of {scores.tolist()}, on {board.description}")


if __name__ == "__main__":
    main()
