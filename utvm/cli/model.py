# SPDX-License-Identifier: Apache-2.0
"""The commands ``model.*``; what they print is in ``model_run``, ``_eval``, ``_profile`` and ``_library``."""

from invoke.context import Context

from utvm.choice import BoardChoice
from utvm.cli import task
from utvm.cli.choices import IN_RAM, CompileChoice, InputChoice, RunChoice, SampleChoice
from utvm.errors import ExitCode


@task(
    help={
        "output": "where to write the output: .npy, or .npz for several",
        "json": "where to write figures and the SHA-256 of the outputs",
        "standing_alone": "the board runs it by itself: flashed with its input, switched off and on, listened to",
        "in_ram": f"load it {IN_RAM}",
    },
)
def run(
    _: Context,
    model: RunChoice,
    *,
    output: str = "",
    json: str = "",
    standing_alone: bool = False,
    in_ram: bool = False,
    where: BoardChoice,
) -> None:
    """Run a model of your own on a board: outputs, instructions or cycles, flash and RAM."""
    from utvm.cli.model_run import run_model

    run_model(model, where, output, json, standing_alone, in_ram)


@task(
    name="eval",
    help={
        "validate_against": "a board that runs the same: exit code 1 if an output differs in a bit",
        "json": "where to write every prediction, its count and outputs, and what differs",
    },
)
def eval_(
    _: Context, asked: SampleChoice, *, validate_against: str = "", json: str = "", where: BoardChoice
) -> ExitCode:
    """Run a model on samples on a board, print each prediction, and compare with another board bit for bit."""
    from models.catalogue import CATALOGUE
    from utvm.cli.model_eval import evaluate

    return evaluate(CATALOGUE, asked, where, validate_against, json)


@task(help={"output": "folder for the profile's folder (default: build)"})
def profile(_: Context, model: InputChoice, where: BoardChoice, output: str = "") -> None:
    """Run a model on a board and show what each of its operators takes, as a table and a picture."""
    from utvm.cli.model_profile import profile_model

    profile_model(where, model, output)


@task(help={"output": "the archive to write (default: the model's name and .tar)"})
def package(_: Context, asked: CompileChoice, output: str = "") -> None:
    """Compile a model into an archive for other people's builds: CMake, Zephyr, Arduino, any C99 compiler."""
    from utvm.cli import model_library

    model_library.package(asked, output)


@task(
    help={
        "output": "folder for the report's folder (default: build)",
        "misra": "count what cppcheck finds of MISRA C:2012; takes minutes",
    },
)
def report(_: Context, asked: CompileChoice, output: str = "", misra: bool = False) -> None:
    """Compile a model and show its operators, what stayed in float and why, and the memory plan."""
    from utvm.cli import model_library

    model_library.report(asked, output, misra)
