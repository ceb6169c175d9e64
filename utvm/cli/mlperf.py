# SPDX-License-Identifier: Apache-2.0
"""The commands ``mlperf.*``; what they do is in ``mlperf_run``."""

from invoke.context import Context

from utvm.cli import task
from utvm.cli.choices import CompiledChoice, JsonChoice
from utvm.selection import BOARD, BoardSelection

_PAGE = "docs/mlperf-tiny.md"
_TASK = "which of the benchmark's tasks the model is for: ic01, vww01, kws01 or ad01"


@task(
    example="mlperf.build --model vww_96_int8.tflite --task vww01 --board stm32f746 --output vww.elf",
    page=_PAGE,
    help={"board": BOARD, "task": _TASK, "output": "the ELF file to write"},
)
def build(_: Context, asked: CompiledChoice, *, board: str = "", task: str = "", output: str = "") -> None:
    """Build firmware that answers the benchmark's own runner over the board's serial line."""
    from utvm.cli.mlperf_run import write_image

    write_image(asked, board, task, output)


@task(
    example="mlperf.run --model vww_96_int8.tflite --task vww01 --board stm32f746 --mode performance",
    page=_PAGE,
    help={
        "task": _TASK,
        "mode": "performance (default) or accuracy",
        "data": "folder with y_labels.csv and its files; without it, random values, for performance alone",
        "samples": "only so many of them",
        "iterations": "measured runs of each window of performance (default: 10)",
    },
)
def run(
    _: Context,
    asked: CompiledChoice,
    json: JsonChoice,
    where: BoardSelection,
    *,
    task: str = "",
    mode: str = "performance",
    data: str = "",
    samples: int = 0,
    iterations: int = 10,
) -> None:
    """Run a model on a board by MLPerf Tiny's serial protocol: performance or accuracy. No official result."""
    from utvm.cli.mlperf_run import run_task

    run_task(asked, json, where, task, mode, data, samples, iterations)
