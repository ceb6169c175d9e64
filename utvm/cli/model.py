# SPDX-License-Identifier: Apache-2.0
"""The commands ``model.*``; what they print is in modules ``model_...``."""

from pathlib import Path

from invoke.context import Context

from utvm.cli import task
from utvm.cli.choices import (
    IN_RAM,
    CompareChoice,
    CompileChoice,
    CountingChoice,
    InputChoice,
    JsonChoice,
    QuantizeChoice,
    RunChoice,
    SampleChoice,
    TuneChoice,
)
from utvm.errors import ExitCode
from utvm.selection import BoardSelection


@task(
    example="model.run my.tflite --board stm32f746 --input x.npy --output y.npy",
    page="README.md",
    in_farm=True,
    help={
        "output": "where to write the output: .npy, or .npz for several",
        "standing_alone": "the board runs it by itself: flashed with its input, switched off and on, listened to",
        "in_ram": f"load it {IN_RAM}",
    },
)
def run(
    _: Context,
    model: RunChoice,
    *,
    output: str = "",
    json: JsonChoice,
    standing_alone: bool = False,
    in_ram: bool = False,
    where: CountingChoice,
) -> None:
    """Run a model of your own on a board: outputs, instructions or cycles, flash and RAM."""
    from utvm.cli.model_run import run_model

    run_model(model, where, output, json, standing_alone, in_ram)


@task(
    example="model.eval my.onnx --board stm32f746 --inputs x.npz --labels y.npy",
    page="docs/eval.md",
    in_farm=True,
    name="eval",
    help={
        "validate_against": "a board that runs the same: exit code 1 if an output differs in a bit",
    },
)
def eval_(
    _: Context, asked: SampleChoice, *, validate_against: str = "", json: JsonChoice, where: BoardSelection
) -> ExitCode:
    """Run a model on samples on a board, print each prediction, and compare with another board bit for bit."""
    from models.catalogue import CATALOGUE
    from utvm.cli.model_eval import evaluate

    return evaluate(CATALOGUE, asked, where, validate_against, json)


@task(
    example="model.quantize my.onnx --samples samples.npz",
    page="docs/eval.md",
    help={"output": "the model to write (default: the model's name with _int8 or _16x8, and .onnx)"},
)
def quantize(_: Context, asked: QuantizeChoice, json: JsonChoice, output: str = "") -> None:
    """Make an int8 model of an ONNX model of real numbers, by samples, and print what each layer has lost."""
    from utvm.cli.model_quantize import quantize_model

    quantize_model(asked, output, json)


@task(
    example="model.compare my.onnx my_int8.onnx --boards stm32f746,mps2-an385",
    page="docs/eval.md",
    several=True,
    knows_boards=True,
    help={"output": "the picture to write (default: compare.svg)"},
)
def compare(_: Context, asked: CompareChoice, json: JsonChoice, output: str = "compare.svg") -> None:
    """Run models on boards, and show what each takes there in one table and one picture."""
    from models.catalogue import CATALOGUE
    from utvm.cli.model_compare import compare_models

    compare_models(CATALOGUE, asked, output, json)


@task(
    example="model.profile my.tflite --board stm32f746",
    page="docs/rpc.md",
    help={
        "output": "folder for the profile's folder (default: build)",
        "estimate": "estimate cycles, too, where LLVM models the core's pipeline (needs llvm-mca)",
        "diff": "compare this profile.json, layer by layer, with the one that is named as the model",
    },
)
def profile(
    _: Context,
    model: InputChoice,
    where: CountingChoice,
    json: JsonChoice,
    output: str = "",
    estimate: bool = False,
    diff: str = "",
) -> None:
    """Run a model on a board and show what each of its operators takes, as a table and a picture."""
    if diff:
        from utvm.cli.model_profile_diff import compare_profiles

        compare_profiles(Path(diff), Path(model.model), json)
        return
    from utvm.cli.model_profile import profile_model

    profile_model(where, model, output, json, estimate)


@task(
    example="model.tune my.onnx --board stm32f746 --trials 64",
    page="docs/tuning.md",
    in_farm=True,
)
def tune(_: Context, asked: TuneChoice, where: CountingChoice, json: JsonChoice) -> None:
    """Measure on a board what computes each layer fastest, with the same results bit for bit, and keep that."""
    from utvm.cli.model_tune import tune_model

    tune_model(asked, where, json)


@task(
    example="model.package my.tflite --board stm32f746",
    page="README.md",
    help={"output": "the archive to write (default: the model's name and .tar)"},
)
def package(_: Context, asked: CompileChoice, json: JsonChoice, output: str = "") -> None:
    """Compile a model into an archive for other people's builds: CMake, Zephyr, Arduino, any C99 compiler."""
    from utvm.cli import model_library

    model_library.package(asked, json, output)


@task(
    example="model.report my.tflite --board stm32f746",
    page="docs/compiler.md",
    help={
        "output": "folder for the report's folder (default: build)",
        "misra": "count what cppcheck finds of MISRA C:2012; takes minutes",
    },
)
def report(_: Context, asked: CompileChoice, json: JsonChoice, output: str = "", misra: bool = False) -> None:
    """Compile a model and show its operators, what stayed in float and why, and the memory plan."""
    from utvm.cli import model_library

    model_library.report(asked, json, output, misra)
