"""From the runs of a model on a board to the figures that are reported of it."""

import hashlib
from collections.abc import Sequence

import numpy as np

from utvm.firmware import Firmware
from utvm.hil.results import ModelResult
from utvm.session import RunResult


def summarise(
    name: str,
    firmware: Firmware,
    runs: Sequence[RunResult],
    *,
    executor: str,
    labels: Sequence[int] | None = None,
) -> ModelResult:
    """Sum up what a model did on a board, one run a sample.

    Args:
        firmware: the image that it ran in.
        executor: how it was run, for example ``host-driven``.
        labels: the right class of every sample; the model's class is the largest element of its first output.

    Raises:
        ValueError: no runs, or not as many labels as runs.
    """
    if not runs:
        raise ValueError("a model without runs has no figures")
    if labels is not None and len(labels) != len(runs):
        raise ValueError(f"{len(labels)} labels for {len(runs)} runs")
    outputs = hashlib.sha256()
    for run in runs:
        for output in run.outputs:
            outputs.update(np.ascontiguousarray(output).tobytes())
    accuracy: float | None = None
    confusion: tuple[tuple[int, ...], ...] = ()
    if labels is not None:
        predictions = [int(np.argmax(run.outputs[0])) for run in runs]
        accuracy = float(np.mean(np.array(labels) == np.array(predictions)))
        confusion = _confusion(labels, predictions, classes=runs[0].outputs[0].size)
    return ModelResult(
        name=name,
        executor=executor,
        outputs_sha256=outputs.hexdigest(),
        samples=len(runs),
        accuracy=accuracy,
        # A count that was observed, not an average of two.
        count=sorted(run.count for run in runs)[len(runs) // 2],
        unit=runs[0].unit,
        firmware=firmware,
        confusion=confusion,
    )


def _confusion(labels: Sequence[int], predictions: Sequence[int], classes: int) -> tuple[tuple[int, ...], ...]:
    table = np.zeros((classes, classes), dtype=int)
    np.add.at(table, (np.array(labels), np.array(predictions)), 1)
    return tuple(tuple(int(samples) for samples in row) for row in table)
