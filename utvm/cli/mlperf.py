# SPDX-License-Identifier: Apache-2.0
"""The command ``mlperf.run``."""

from invoke.context import Context

from utvm.cli import task
from utvm.cli.choices import CompiledChoice
from utvm.selection import BoardSelection


@task(
    runs="mlperf_run:run_task",
    example="mlperf.run --model vww_96_int8.tflite --task vww01 --board stm32f746 --mode performance",
    page="docs/mlperf-tiny.md",
    json=True,
    help={
        "task": "task of the benchmark: ic01, vww01, kws01 or ad01",
        "mode": "performance (default) or accuracy",
        "data": "folder with y_labels.csv and its files (default: random values, for performance only)",
        "samples": "number of samples (default: all)",
        "iterations": "measured runs of each window of performance (default: 10)",
    },
)
def run(
    _: Context,
    request: CompiledChoice,
    where: BoardSelection,
    *,
    task: str = "",
    mode: str = "performance",
    data: str = "",
    samples: int = 0,
    iterations: int = 10,
) -> None:
    """Run a model by MLPerf Tiny's serial protocol: performance or accuracy; not an official result."""
