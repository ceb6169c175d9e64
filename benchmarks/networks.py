# SPDX-License-Identifier: Apache-2.0
"""The int8 networks on which the compiler is measured.

They are not part of the project: they are read from the folder that ``UTVM_MODEL_CACHE`` names. Those of MLPerf Tiny
are files of mlcommons/tiny, in benchmark/training/*/trained_models; the CIFAR-10 network is that of the microTVM blog
post of 2020, whose trained weights are ``cifar10_cnn_params.json`` of microtvm-blogpost-eval; ``models/cifar10_cnn``
writes the file.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from models.cifar10_cnn.network import network, read_parameters


@dataclass(frozen=True)
class Network:
    """A network with its limits.

    Attributes:
        content: a TensorFlow Lite file.
        most_instructions: the limit for one inference.
        most_arena: the limit of working memory in bytes, with inputs and outputs.
        usual: the usual kernels, with their instructions and bytes of working memory, counted once on the same
            yardstick (not measured again here).
    """

    name: str
    content: bytes
    most_instructions: int
    most_arena: int
    usual: tuple[str, int, int]


def read_file(name: str) -> bytes:
    """Read a file of a network.

    Raises:
        SystemExit: UTVM_MODEL_CACHE does not name a folder with this file.
    """
    return _path(name).read_bytes()


def _path(name: str) -> Path:
    folder = os.environ.get("UTVM_MODEL_CACHE", "")
    path = Path(folder) / name
    if not folder or not path.is_file():
        raise SystemExit(f"set UTVM_MODEL_CACHE to a folder with {name}")
    return path


def networks() -> list[Network]:
    """Read the three networks; as :func:`read_file`."""
    cifar10_cnn = network(read_parameters(_path("cifar10_cnn_params.json")))
    resnet, vww = read_file("pretrainedResnet_quant.tflite"), read_file("vww_96_int8.tflite")
    tflm = "TFLite Micro + CMSIS-NN"
    return [
        Network("cifar10_cnn", cifar10_cnn, 19_000_000, 41 * 1024, ("CMSIS-NN", 25_501_958, 44_160)),
        Network("resnet8", resnet, 25_000_000, 45 * 1024, (tflm, 30_023_120, 54_996)),
        Network("vww", vww, 20_000_000, 60 * 1024, (tflm, 24_025_498, 100_708)),
    ]
