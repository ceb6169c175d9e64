# SPDX-License-Identifier: Apache-2.0
"""Options shared by several commands, besides those of :mod:`utvm.selection`."""

import dataclasses
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm import errors, selection
from utvm.selection import Parts, option

IN_SAMPLES = "-"
"""``--labels`` without a file: the samples file contains the labels."""

SWO = "also write the bytes of the pin SWO, as OpenOCD receives them, into this file; all stimulus ports are on"
_MIRROR = "URL of a Debian mirror; {archive} stands for debian and debian-security (default: apt's own)"
_NUMBER = re.compile(r"-?\d+")
_NUMBERS = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?(,[-+]?\d+(\.\d*)?([eE][-+]?\d+)?)*")

MODEL = "ONNX, TensorFlow Lite or Relax (.json) file; with --run-python, also PyTorch (.pt2) or Relax (.py)"

_SHAPE = ("shape", "signature")
_PICTURES = (*_SHAPE, "scale")
_LAYOUT = ("memory", "pin", "weights-in-ram", "input-rows")
_COMPILED = (*_SHAPE, "tuned", "executor", "accelerator", *_LAYOUT, "unchecked-indices", "optimize")
SETTINGS = (*_COMPILED, "scale", "weights", "in-ram")
"""Keys of ``--set``, which docs/compiler.md describes."""


def _setting(text: str) -> Parts:
    key, _, value = text.partition("=")
    return (f"{key}=", *selection.as_file(value)) if key in ("tuned", "weights") else (text,)


def _settings(keys: tuple[str, ...]) -> Any:
    known = f"keys: {', '.join(keys)} (docs/compiler.md); or INPUT=NUMBERS of an ONNX model"
    text = f"KEY=VALUE, may be repeated; {known}"
    return option((), text, spelled=_setting, keys=keys)


@dataclass(frozen=True)
class CountingChoice(selection.BoardSelection):
    """A board, and the unit that a virtual one counts."""

    cycles: bool = option(False, "count modelled cycles on a virtual board, as NAME:cycles=model (docs/time.md)")

    def __post_init__(self) -> None:
        if self.cycles and ":cycles=" not in self.board and ",cycles=" not in self.board:
            separator = "," if selection.split_name(self.board)[1] else ":"
            object.__setattr__(self, "board", f"{self.board}{separator}cycles=model")


@dataclass(frozen=True)
class ModelChoice:
    """A model, whether it may be executed, and settings of loading and compiling it."""

    model: str = option("", MODEL, required=True, spelled=selection.as_file)
    run_python: bool = option(False, "trust the model file as a program: a .py file is executed, a .pt2 file may be")
    set_: tuple[str, ...] = _settings(_SHAPE)

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        (keys,) = (field.metadata["keys"] for field in dataclasses.fields(cls) if field.name == "set_")
        return tuple(keys)

    @property
    def settings(self) -> dict[str, str]:
        """Values of ``--set`` by key; shapes are joined by semicolons."""
        values: dict[str, str] = {}
        keys = self.keys()
        for text in self.set_:
            key, equals, value = text.partition("=")
            if text.rpartition("=")[0] in self.values:
                continue
            if key not in keys or not value:
                known = errors.did_you_mean(key, keys, f"the keys are {', '.join(keys)}")
                problem = "is not KEY=VALUE" if key in keys or not equals else f"has the unknown key {key!r}"
                raise errors.ConfigError(f"--set {text!r} {problem}", known)
            if key in values and key != "shape":
                raise errors.ConfigError(f"--set {key} is given twice", "give it once, with commas between values")
            values[key] = f"{values[key]};{value}" if key in values else value
        return values

    @property
    def values(self) -> dict[str, tuple[float, ...]]:
        """Constant values of inputs, from settings such as ``sr=16000``, where the key is an input's name."""
        values = {}
        for text in self.set_:
            name, _, numbers = text.rpartition("=")
            if name and name.partition("=")[0] not in SETTINGS and _NUMBERS.fullmatch(numbers):
                split = numbers.split(",")
                values[name] = tuple(int(item) if _NUMBER.fullmatch(item) else float(item) for item in split)
        return values

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of inputs, from settings such as ``shape=image=1,8,8,1``."""
        shapes = {}
        for text in filter(None, self.settings.get("shape", "").split(";")):
            name, _, sizes = text.rpartition("=")
            if not name or not all(size.strip().isdecimal() and int(size) for size in sizes.split(",")):
                raise errors.ConfigError(
                    f"--set shape={text!r} is not a shape",
                    "write shape=NAME=1,8,8,1, with a size from 1 for each dimension",
                )
            shapes[name] = tuple(map(int, sizes.split(",")))
        return shapes


@dataclass(frozen=True)
class OptionalModelChoice(ModelChoice):
    model: str = option("", MODEL, spelled=selection.as_file)


@dataclass(frozen=True)
class QuantizeChoice(ModelChoice):
    """A model, its calibration samples, and the type to quantise to."""

    set_: tuple[str, ...] = _settings(_PICTURES)
    samples: str = option("", "calibration samples, as --inputs of model.eval")
    labels: str = option("", "expected classes, unless the samples file contains them as labels")
    to: str = option("int8", "int8 (default), or 16x8: 16-bit activations, more exact, but computed in floating point")
    calibration: str = option("minmax", "method for ranges: minmax (default), entropy, percentile or mse")
    least_snr: float = option(
        0.0, "minimum signal-to-noise ratio in dB: tensors below it in 8 bits get 16, computed in floating point"
    )


@dataclass(frozen=True)
class CompiledChoice(ModelChoice):
    """A model and its compile options."""

    set_: tuple[str, ...] = _settings(_COMPILED)


@dataclass(frozen=True)
class LinkedChoice(CompiledChoice):
    """A model and its compile and link options."""

    set_: tuple[str, ...] = _settings((*_COMPILED, "in-ram"))


@dataclass(frozen=True)
class InputChoice(CompiledChoice):
    set_: tuple[str, ...] = _settings((*_COMPILED, "scale"))
    input: str = option(
        "",
        "input: .npy, .csv, .npz with one array for each input, or a PNG or JPEG picture (default: seeded random "
        "values); floats for a quantised input are quantised",
        spelled=selection.as_file,
    )


@dataclass(frozen=True)
class RunChoice(InputChoice):
    """A model and its input, in flash or in RAM."""

    set_: tuple[str, ...] = _settings((*_COMPILED, "scale", "in-ram"))


@dataclass(frozen=True)
class ListenChoice:
    """Seconds for which a board's console is printed, and the file for its trace."""

    monitor: float = option(0.0, "print the console: for this many seconds, or until Ctrl-C", bare=math.inf)
    swo: str = option("", SWO)


@dataclass(frozen=True)
class DebugChoice(CompiledChoice):
    """The ELF file to debug, or the model for one that runs on random values."""

    elf: str = option("", "ELF file of your build; or give --model")
    model: str = option("", f"build firmware of this model, run on random values: {MODEL}")


@dataclass(frozen=True)
class CompileChoice(CompiledChoice):
    """A model that is compiled for a board or for any CPU."""

    board: str = option("", "compile for the CPU of this board (default: any C99 compiler)")


@dataclass(frozen=True)
class MirrorChoice:
    mirror: str = option("", _MIRROR)


@dataclass(frozen=True)
class ImageChoice:
    mirror: str = option("", f"{_MIRROR}; or a folder of env.archive, instead of the network")
    no_cache: bool = option(False, "rebuild every layer, and compare it with the cached one")
    sign: str = option("", "minisign secret key that signs the checksums of the result")

    @property
    def source(self) -> tuple[Path | None, str]:
        """The archive, if any, and the URL of the mirror."""
        return (None, self.mirror) if not self.mirror or "://" in self.mirror else (Path(self.mirror), "")


@dataclass(frozen=True)
class TuneChoice(ModelChoice):
    """A model to tune, the length of the search, and the boards to measure on."""

    trials: int = option(64, "number of candidates to measure (default: 64)")
    log: str = option(
        "",
        "log of candidates; those already in it are not measured again (default: MODEL-BOARD.jsonl)",
        spelled=selection.as_file,
    )
    tracker: str = option(
        "",
        "HOST:PORT or HOST:PORT/KEY of a TVM RPC tracker: measure on the boards that it serves by this key "
        "(default: the board's name)",
    )
    count: int = option(1, "with --in farm: number of boards to measure on at once")


@dataclass(frozen=True)
class CompareChoice:
    """Models, boards and samples to compare them on."""

    models: str = option("", "models as for model.eval, with inputs of the same shape", required=True)
    boards: str = option("", "board names, comma-separated (board.list --fits MODEL lists where a model fits)")
    inputs: str = option("", "samples as for model.eval (default: one, random)")
    labels: str = option("", "expected classes as for model.eval, for the accuracy")
    set_: tuple[str, ...] = _settings(_PICTURES)


@dataclass(frozen=True)
class SampleChoice(ModelChoice):
    set_: tuple[str, ...] = _settings((*_PICTURES, "weights"))
    model: str = option(
        "",
        f"a model of utvm: cifar10_cnn, digits, digits_int8 or resnet18; or {MODEL}",
        required=True,
        spelled=selection.as_file,
    )
    samples: str = option(
        "", "samples, as --inputs; or their number (default: 10, or all of the file)", spelled=selection.as_path
    )
    inputs: str = option(
        "",
        "samples: .npy, .npz, .csv, a picture or a folder of pictures; for cifar10_cnn, uint8 images "
        "(default: the model's own samples, or random)",
        spelled=selection.as_path,
    )
    labels: str = option(
        "",
        "expected classes (.npy, .csv or .npz) for accuracy and confusion matrix; without a file, the labels in "
        "the samples file",
        bare=IN_SAMPLES,
        spelled=selection.as_file,
    )
    reference: str = option(
        "",
        "compare with another library: tflm or litert (.tflite), onnx or onnxruntime (.onnx); for litert, install "
        "utvm[references]",
    )

    @property
    def count(self) -> int | None:
        """Number of samples; None if not given."""
        return int(self.samples) if _NUMBER.fullmatch(self.samples) else None

    @property
    def source(self) -> str:
        """File or folder of samples; empty for the model's own, or random ones."""
        return self.samples if self.samples and self.count is None else self.inputs
