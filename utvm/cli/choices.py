# SPDX-License-Identifier: Apache-2.0
"""Options that more than one command has, beside those of :mod:`utvm.selection`."""

import math
import re
from dataclasses import dataclass
from typing import Any

from utvm.options import option
from utvm.selection import BoardSelection, as_file, as_path

IN_SAMPLES = "-"
"""What ``--labels`` means without a value: they are in the file of samples."""

_NUMBER = re.compile(r"-?\d+")

MODEL = "ONNX, TensorFlow Lite or Relax (.json) file; with --run-python, also PyTorch (.pt2) or Relax (.py)"
IN_RAM = "into RAM only, through the debug port; flash is not written"


def _run_python() -> Any:
    return option(False, "trust the model file as a program: a .py file is executed, a .pt2 file may be")


def _shape() -> Any:
    return option("", "shapes of inputs with open dimensions: NAME=1,8,8,1; separate several by ;")


def _explain() -> Any:
    return option(
        False, "print for each operator whether it was folded or fused, its kernel, or why it stays in float"
    )


def _scale() -> Any:
    return option(
        "",
        "values of black and white in a picture: 0..1, -1..1, 0..255 (default: the range of an 8-bit input)",
    )


@dataclass(frozen=True)
class CountingChoice(BoardSelection):
    """Which board is meant, and what a virtual one counts."""

    wait_states: bool = option(
        False, "count modelled cycles on a virtual board: instructions plus modelled flash wait states"
    )


@dataclass(frozen=True)
class JsonChoice:
    """Where what a command finds out is written for programs; ``-`` is the standard output."""

    json: str = option(
        "",
        "write the results as JSON to this file; without a file, print them",
        bare="-",
        spelled=as_file,
    )


@dataclass(frozen=True)
class ModelChoice:
    """Which model is meant, and whether it may be a program."""

    model: str = option("", MODEL, required=True, spelled=as_file)
    run_python: bool = _run_python()
    shape: str = _shape()


@dataclass(frozen=True)
class OptionalModelChoice(ModelChoice):
    """A model that a command may do without."""

    model: str = option("", MODEL, spelled=as_file)


@dataclass(frozen=True)
class QuantizeChoice(ModelChoice):
    """Which model is quantised, into what, and by which samples."""

    samples: str = option("", "calibration samples, as --inputs of model.eval")
    scale: str = _scale()
    labels: str = option("", "expected classes, unless the samples file contains them as labels")
    to: str = option(
        "int8",
        "int8 (default), or 16x8: 16-bit activations, more exact, but computed in floating point",
    )


@dataclass(frozen=True)
class CompiledChoice(ModelChoice):
    """Which model is compiled, by what, and whether it is told how."""

    explain: bool = _explain()
    tuned: str = option(
        "", "log of model.tune for this core: use its fastest candidate for each layer", spelled=as_file
    )
    unchecked_indices: bool = option(
        False,
        "do not check indices in inputs: one out of range reads memory outside the tensor",
    )


@dataclass(frozen=True)
class ExecutorChoice(CompiledChoice):
    """Which model is meant, what calls its operators, and who computes them."""

    executor: str = option(
        "aot",
        "aot (default): generated calls of the operators; graph: interprets a graph description; same results",
    )
    accelerator: str = option(
        "auto",
        "operators to run on the board's accelerator: auto (default; those estimated to be faster), all, off; "
        "same results",
    )


@dataclass(frozen=True)
class InputChoice(ExecutorChoice):
    """Which model is meant, and what it is given."""

    input: str = option(
        "",
        "input: .npy, .csv, .npz with one array for each input, or a PNG or JPEG picture (default: seeded random "
        "values); floats for a quantised input are quantised",
        spelled=as_file,
    )
    scale: str = _scale()


@dataclass(frozen=True)
class MemoryChoice:
    """Where working memory lies; in an image for a board the regions lie one behind the other."""

    memory: str = option("", "RAM regions, fastest first: fast=16K,slow (default: one, arena)")
    pin: str = option("", "place tensors in regions: TENSOR=REGION, comma-separated")


@dataclass(frozen=True)
class RunChoice(MemoryChoice, InputChoice):
    """Which model is meant, what it is given, and how its answer is."""

    raw: bool = option(False, "read and write raw integers, without quantising or dequantising")


@dataclass(frozen=True)
class ListenChoice:
    """How long a board's console is listened to, 0 for not at all."""

    monitor: float = option(0.0, "print the console: for this many seconds, or until Ctrl-C", bare=math.inf)


@dataclass(frozen=True)
class DebugChoice(CompiledChoice):
    """What is debugged: an image of somebody's own, or one of a model, which runs it on random values."""

    elf: str = option("", "ELF file of your build; or give --model")
    model: str = option("", f"build firmware of this model, run on random values: {MODEL}")


@dataclass(frozen=True)
class CompileChoice(MemoryChoice, ExecutorChoice):
    """What is asked of the compiler."""

    board: str = option("", "compile for the CPU of this board (default: any C99 compiler)")


@dataclass(frozen=True)
class MirrorChoice:
    """Where Debian's packages are fetched."""

    mirror: str = option(
        "", "URL of a Debian mirror; {archive} stands for debian and debian-security (default: apt's own)"
    )


@dataclass(frozen=True)
class ImageChoice(MirrorChoice, JsonChoice):
    """How what the environment is realised as is made."""

    no_cache: bool = option(False, "rebuild every layer, and compare it with the cached one")
    archive: str = option("", "read package files from this archive (see env.archive) instead of the network")
    sign: str = option("", "minisign secret key that signs the checksums of the result")


@dataclass(frozen=True)
class TuneChoice(ModelChoice):
    """Which model is tuned, how long, by what, and where what is found goes."""

    trials: int = option(64, "number of candidates to measure (default: 64)")
    log: str = option(
        "",
        "log of candidates; those already in it are not measured again (default: MODEL-BOARD.jsonl)",
        spelled=as_file,
    )
    tracker: str = option("", "HOST:PORT of a TVM RPC tracker: measure on the boards that it serves")
    key: str = option("", "with --tracker: the boards' RPC key (default: the board's name)")
    count: int = option(1, "with --in farm: number of boards to measure on at once")
    seed: int = option(0, "random seed of inputs and candidates")


@dataclass(frozen=True)
class CompareChoice:
    """Which models are compared on which boards, and by what."""

    models: str = option("", "models as for model.eval, with inputs of the same shape", required=True)
    boards: str = option("", "board names, comma-separated (board.list --fits MODEL lists where a model fits)")
    inputs: str = option("", "samples as for model.eval (default: one, random)")
    scale: str = _scale()
    labels: str = option("", "expected classes as for model.eval, for the accuracy")
    shape: str = _shape()
    explain: bool = _explain()


@dataclass(frozen=True)
class SampleChoice:
    """A model and what it is tried on."""

    model: str = option(
        "",
        f"cifar10_cnn, digits, digits_int8 or resnet18, the project's own; or {MODEL}",
        required=True,
        spelled=as_file,
    )
    run_python: bool = _run_python()
    shape: str = _shape()
    explain: bool = _explain()
    samples: str = option(
        "", "samples, as --inputs; or their number (default: 10, or all of the file)", spelled=as_path
    )
    weights: str = option(
        "",
        "weights file for cifar10_cnn, see its README.md (default: seeded random weights)",
        spelled=as_file,
    )
    inputs: str = option(
        "",
        "samples: .npy, .npz, .csv, a picture or a folder of pictures; for cifar10_cnn, uint8 images "
        "(default: the model's own samples, or random)",
        spelled=as_path,
    )
    scale: str = _scale()
    seed: int = option(0, "random seed of weights and samples")
    labels: str = option(
        "",
        "expected classes (.npy, .csv or .npz) for accuracy and confusion matrix; without a file, the labels in "
        "the samples file",
        bare=IN_SAMPLES,
        spelled=as_file,
    )
    reference: str = option(
        "",
        "compare with another library: tflm or litert (.tflite), onnx or onnxruntime (.onnx); litert and "
        "onnxruntime need the extra references",
    )

    @property
    def count(self) -> int | None:
        """How many samples are wanted; None where that is not said."""
        return int(self.samples) if _NUMBER.fullmatch(self.samples) else None

    @property
    def source(self) -> str:
        """Where the samples are; empty where they are the model's own, or random."""
        return self.samples if self.samples and self.count is None else self.inputs
