# SPDX-License-Identifier: Apache-2.0
"""The commands ``model.*``; the modules ``model_...`` do their work."""

from invoke.context import Context

from utvm.cli import task
from utvm.cli.choices import (
    CompareChoice,
    CompileChoice,
    CountingChoice,
    InputChoice,
    QuantizeChoice,
    RunChoice,
    SampleChoice,
    TuneChoice,
)
from utvm.selection import BoardSelection


@task(
    runs="model_run:run_model",
    example="model.run my.tflite --board stm32f746 --input x.npy --output y.npy",
    page="README.md",
    json=True,
    in_farm=True,
    help={
        "output": "file for the output: .npy, or .npz for several",
        "standing_alone": "flash model and input, power-cycle the board, read the result from its console",
    },
)
def run(_: Context, model: RunChoice, *, output: str = "", standing_alone: bool = False, where: CountingChoice) -> None:
    """Run a model on a board and print its outputs, instructions or cycles, flash and RAM."""


@task(
    runs="model_eval:evaluate",
    example="model.eval my.onnx --board stm32f746 --inputs x.npz --labels y.npy",
    page="docs/eval.md",
    json=True,
    in_farm=True,
    name="eval",
    help={"validate_against": "second board to compare with: exit code 1 if an output bit differs"},
)
def eval_(_: Context, request: SampleChoice, *, validate_against: str = "", where: BoardSelection) -> None:
    """Run a model on samples on a board: predictions, accuracy, and a bitwise comparison with another board."""


@task(
    runs="model_quantize:quantize_model",
    example="model.quantize my.onnx --samples samples.npz",
    page="docs/eval.md",
    json=True,
    help={"output": "model file to write (default: MODEL_int8.onnx or MODEL_16x8.onnx)"},
)
def quantize(_: Context, request: QuantizeChoice, output: str = "") -> None:
    """Quantise an ONNX float model to int8 with samples for calibration, and report the error of each layer."""


@task(
    runs="model_compare:compare_models",
    example="model.compare my.onnx my_int8.onnx --boards stm32f746,mps2-an385",
    page="docs/eval.md",
    json=True,
    several=True,
    help={"output": "picture to write (default: compare.svg)"},
)
def compare(_: Context, request: CompareChoice, output: str = "compare.svg") -> None:
    """Run several models on several boards and compare them in one table and one picture."""


@task(
    runs="model_profile:profile_model",
    example="model.profile my.tflite --board stm32f746",
    page="docs/rpc.md",
    json=True,
    help={
        "output": "parent folder of the profile (default: build)",
        "diff": "compare this profile.json, layer by layer, with the profile.json given as MODEL",
    },
)
def profile(_: Context, model: InputChoice, where: CountingChoice, output: str = "", diff: str = "") -> None:
    """Run a model on a board and show the cost of each operator, as a table and a picture."""


@task(
    runs="model_tune:tune_model",
    example="model.tune my.onnx --board stm32f746 --trials 64",
    page="docs/tuning.md",
    json=True,
    in_farm=True,
)
def tune(_: Context, request: TuneChoice, where: CountingChoice) -> None:
    """Find the fastest kernel of each layer by measuring on a board; results stay bit-identical."""


@task(
    runs="model_library:package",
    example="model.package my.tflite --board stm32f746",
    page="docs/tutorial.md",
    json=True,
    help={"output": "archive to write (default: MODEL.tar)"},
)
def package(_: Context, request: CompileChoice, output: str = "") -> None:
    """Compile a model into an archive for other build systems: CMake, Zephyr, Arduino, any C99 compiler."""


@task(
    runs="model_library:report",
    example="model.report my.tflite --board stm32f746",
    page="docs/compiler.md",
    json=True,
    help={
        "output": "parent folder of the report (default: build)",
        "explain": "print for each operator whether it was folded or fused, its kernel, or why it stays in float",
        "misra": "count MISRA C:2012 violations with cppcheck; takes minutes",
    },
)
def report(_: Context, request: CompileChoice, output: str = "", explain: bool = False, misra: bool = False) -> None:
    """Compile a model and report its operators, those not quantised and why, and the memory plan."""
