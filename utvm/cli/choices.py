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

MODEL = "an ONNX, TensorFlow Lite or Relax (.json) file; with --run-python, PyTorch (.pt2) or Relax (.py)"
IN_RAM = "into RAM alone, for the debug port: flash stays as it is, and where things lie is chosen for you"


def _run_python() -> Any:
    return option(False, "the model is a program that you trust: a .py file is run, a .pt2 file may be")


def _shape() -> Any:
    return option("", "sizes of inputs that an ONNX file leaves open: NAME=1,8,8,1; several with ; between them")


def _explain() -> Any:
    return option(False, "print what became of each operator and why: folded, fused, its kernel, in float")


def _scale() -> Any:
    return option(
        "",
        "the numbers that black and white of a picture are: 0..1, -1..1, 0..255 (default: the ends of an input "
        "of 8-bit integers)",
    )


@dataclass(frozen=True)
class CountingChoice(BoardSelection):
    """Which board is meant, and what a virtual one counts."""

    wait_states: bool = option(
        False, "a virtual board counts modelled cycles: instructions, and waits for flash by a model of it"
    )


@dataclass(frozen=True)
class JsonChoice:
    """Where what a command finds out is written for programs; ``-`` is the standard output."""

    json: str = option(
        "",
        "write what is found out as JSON into this file; without a file, print it",
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
class QuantizeChoice(ModelChoice):
    """Which model is quantised, into what, and by which samples."""

    samples: str = option("", "what the model is usually given, as --inputs of model.eval: ranges are from it")
    scale: str = _scale()
    labels: str = option("", "the right classes, where they are not in the samples' file as labels")
    to: str = option(
        "int8",
        "int8 (default); 16x8: activations of 16 bits: more exact, but computed in real numbers today",
    )


@dataclass(frozen=True)
class CompiledChoice(ModelChoice):
    """Which model is compiled, by what, and whether it is told how."""

    explain: bool = _explain()
    tuned: str = option(
        "", "a log of model.tune for this core: what it found fastest computes each layer", spelled=as_file
    )
    unchecked_indices: bool = option(
        False,
        "trust indices in inputs: one out of range is no error of the run then, but reads what is not its own",
    )


@dataclass(frozen=True)
class ExecutorChoice(CompiledChoice):
    """Which model is meant, what calls its operators, and who computes them."""

    executor: str = option(
        "aot",
        "aot (default) calls the operators one after another, graph reads a graph description; same results",
    )
    accelerator: str = option(
        "auto",
        "what the board's accelerator is given: auto (default), what it is estimated to make faster; all that it "
        "can do; off, nothing; same results",
    )


@dataclass(frozen=True)
class InputChoice(ExecutorChoice):
    """Which model is meant, and what it is given."""

    input: str = option(
        "",
        "input as .npy, .csv, .npz with an array for each input, or a PNG or JPEG picture of the input's size; "
        "without it, seeded random values; real numbers for a quantised input are quantised",
        spelled=as_file,
    )
    scale: str = _scale()


@dataclass(frozen=True)
class MemoryChoice:
    """Where working memory lies; in an image for a board the regions lie one behind the other."""

    memory: str = option("", "memory regions, the fastest first: fast=16K,slow (default: one, arena)")
    pin: str = option("", "tensors that must lie in a region: TENSOR=REGION, comma-separated")


@dataclass(frozen=True)
class RunChoice(MemoryChoice, InputChoice):
    """Which model is meant, what it is given, and how its answer is."""

    raw: bool = option(False, "take and give integers as they are: nothing is quantised or dequantised")


@dataclass(frozen=True)
class ListenChoice:
    """How long a board's console is listened to, 0 for not at all."""

    monitor: float = option(
        0.0, "print what its console says: for so many seconds, or until Ctrl-C", bare=math.inf
    )


@dataclass(frozen=True)
class DebugChoice(CompiledChoice):
    """What is debugged: an image of somebody's own, or one of a model, which runs it on random values."""

    elf: str = option("", "the ELF file, as your build linked it; or give --model")
    model: str = option("", f"firmware of this model, run on random values: {MODEL}")


@dataclass(frozen=True)
class CompileChoice(MemoryChoice, ExecutorChoice):
    """What is asked of the compiler."""

    board: str = option("", "compile for what this board's CPU has; without it, for any C99 compiler")


@dataclass(frozen=True)
class MirrorChoice:
    """Where Debian's packages are fetched."""

    mirror: str = option(
        "", "URL of a Debian mirror; {archive} stands for debian and debian-security (default: apt's own)"
    )


@dataclass(frozen=True)
class ImageChoice(MirrorChoice, JsonChoice):
    """How what the environment is realised as is made."""

    no_cache: bool = option(False, "make every layer anew, and compare it with the one that was kept")
    archive: str = option("", "take the package files from this archive (see env.archive), not from the network")
    sign: str = option("", "a secret key of minisign: sign the checksums of what was made")


@dataclass(frozen=True)
class TuneChoice(ModelChoice):
    """Which model is tuned, how long, by what, and where what is found goes."""

    trials: int = option(64, "how many candidates to measure (default: 64)")
    log: str = option(
        "",
        "what is found, a line a candidate; what is there already is not measured again "
        "(default: the model's name, the board's and .jsonl)",
        spelled=as_file,
    )
    tracker: str = option("", "HOST:PORT of a TVM RPC tracker: measure on boards that board.serve serves there")
    key: str = option("", "with --tracker: the boards' RPC key (default: the board's name)")
    count: int = option(1, "with --in farm: measure on so many of its boards at once; the search is here")
    seed: int = option(0, "of what is random: inputs and candidates")


@dataclass(frozen=True)
class CompareChoice:
    """Which models are compared on which boards, and by what."""

    models: str = option("", "models as for model.eval, each with samples of one kind", required=True)
    boards: str = option("", "names of boards, comma-separated (board.list --fits MODEL says where one fits)")
    inputs: str = option("", "samples as for model.eval (default: one, random)")
    scale: str = _scale()
    labels: str = option("", "the right classes as for model.eval: accuracy")
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
        "", "the samples, as --inputs; or how many of them (default: 10, or all that there are)", spelled=as_path
    )
    weights: str = option(
        "",
        "a file of weights for cifar10_cnn, as its README.md says (default: seeded random ones)",
        spelled=as_file,
    )
    inputs: str = option(
        "",
        ".npy, .npz or .csv of samples, a picture or a folder of them; for cifar10_cnn, uint8 images "
        "(default: the model's own, or random)",
        spelled=as_path,
    )
    scale: str = _scale()
    seed: int = option(0, "of what is random: weights and samples")
    labels: str = option(
        "",
        "the right classes as .npy, .csv or .npz: accuracy, and what was taken for what; without a file, those in "
        "the file of samples",
        bare=IN_SAMPLES,
        spelled=as_file,
    )
    reference: str = option(
        "",
        "compare with another library: tflm or litert (for .tflite), onnx (its own reference) or onnxruntime (for "
        ".onnx); litert and onnxruntime are in the extra references",
    )

    @property
    def count(self) -> int | None:
        """How many samples are wanted; None where that is not said."""
        return int(self.samples) if _NUMBER.fullmatch(self.samples) else None

    @property
    def source(self) -> str:
        """Where the samples are; empty where they are the model's own, or random."""
        return self.samples if self.samples and self.count is None else self.inputs
