# SPDX-License-Identifier: Apache-2.0
"""Statistics of a model over many samples, bit-exact comparison of two boards' outputs, and models side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len

from utvm.base.text.templates import templates_of
from utvm.compiler import Tensor
from utvm.compiler.library import Sample
from utvm.errors import ConfigError
from utvm.firmware import Firmware
from utvm.session.running import RunResult

_WIDTH = 48  # Columns of text for a model's name in the picture.


@dataclass(frozen=True)
class Mismatch:
    """An output of a sample that differs between two boards.

    Attributes:
        sample: index of the sample.
        index: position of the first differing element.
        value, expected: that element, and its reference value.
        differing, elements: number of differing elements, and of all.
    """

    sample: int
    output: str
    index: tuple[int, ...]
    value: float
    expected: float
    differing: int
    elements: int


def compare(
    sample: int, tensors: Sequence[Tensor], outputs: Sequence[npt.NDArray[Any]], expected: Sequence[npt.NDArray[Any]]
) -> list[Mismatch]:
    """Compare the outputs of one sample bit for bit: NaN equals the same NaN, 0.0 differs from -0.0."""
    mismatches = []
    for tensor, ours, theirs in zip(tensors, outputs, expected, strict=True):
        differences = np.argwhere(_bits(ours) != _bits(theirs))
        if len(differences):
            index = tuple(int(number) for number in differences[0])
            values = ours[index].item(), theirs[index].item()
            mismatches.append(Mismatch(sample, tensor.name, index, *values, len(differences), ours.size))
    return mismatches


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}").reshape(array.shape)


def prediction(outputs: Sequence[npt.NDArray[Any]]) -> int | None:
    """Return the index of a classifier's largest score; None if the outputs are not one vector."""
    if len(outputs) != 1 or sum(length != 1 for length in outputs[0].shape) != 1:
        return None
    return int(outputs[0].argmax())


def as_samples(arrays: Mapping[str, npt.NDArray[Any]], tensors: Sequence[Tensor]) -> list[Sample]:
    """Split arrays into samples: an array per input, by name; a single input's name may be empty.

    Samples are stacked along a new first dimension, or along the input's first dimension if that is 1. An array
    of the input's own shape is one sample.
    """
    if unknown := [name for name in arrays if name and name not in {tensor.name for tensor in tensors}]:
        raise ConfigError(
            f"the inputs hold an array {unknown[0]!r}, which is not an input",
            f"the model's inputs: {', '.join(tensor.name for tensor in tensors)}",
        )
    columns = []
    for tensor in tensors:
        array = arrays.get(tensor.name, arrays.get("") if len(tensors) == 1 else None)
        if array is None:
            raise ConfigError(f"the inputs hold no array {tensor.name!r}", "give an .npz with an array for each input")
        own, shape = tensor.shape, array.shape
        stacked = shape[1:] == own or (own[:1] == (1,) and shape[1:] == own[1:])
        if array.dtype.name != tensor.dtype or not (shape == own or (stacked and shape)):
            raise ConfigError(
                f"input {tensor.name} is {tensor.dtype} {list(own)}, or several with their number in front; "
                f"not {array.dtype.name} {list(shape)}"
            )
        columns.append(array.reshape(-1, *own))
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ConfigError(f"the inputs have {' and '.join(map(str, sorted(lengths)))} samples")
    return [list(sample) for sample in zip(*columns, strict=True)]


@dataclass(frozen=True, repr=False)
class Confusion:
    """Confusion matrix of a classifier; ``counts`` has a row per class and a column per prediction."""

    counts: npt.NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        """Fraction of correct predictions."""
        return float(np.trace(self.counts) / self.counts.sum())

    def recall(self, kind: int) -> float | None:
        """Recall of a class; None if it has no samples."""
        return _ratio(self.counts[kind, kind], self.counts[kind].sum())

    def precision(self, kind: int) -> float | None:
        """Precision of a class; None if it was never predicted."""
        return _ratio(self.counts[kind, kind], self.counts[:, kind].sum())

    def __repr__(self) -> str:
        correct, total = np.trace(self.counts), self.counts.sum()
        return f"<accuracy {self.accuracy:.4f}, {correct} of {total}>"

    def _repr_html_(self) -> str:
        """Render the matrix for a notebook: a row per class, a column per prediction."""
        page = templates_of("utvm.session", html=True).get_template("confusion.html")
        return page.render(title=repr(self)[1:-1], counts=self.counts.tolist())


def _ratio(part: np.int64, whole: np.int64) -> float | None:
    return float(part / whole) if whole else None


def confusion(answers: Sequence[Sequence[npt.NDArray[Any]]], labels: Sequence[int]) -> Confusion:
    """Compute the confusion matrix from the outputs of each sample and the true classes."""
    predicted = [kind for kind in map(prediction, answers) if kind is not None]
    if len(predicted) < len(answers) or not answers:
        raise ConfigError("labels are for a model with one output, a score for each class")
    (scores,) = answers[0]
    classes = scores.size
    if invalid := [label for label in labels if not 0 <= label < classes]:
        raise ConfigError(
            f"label {invalid[0]} is not a class of the model, which has {classes}", "classes count from 0"
        )
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (list(labels), predicted), 1)
    return Confusion(counts)


@dataclass(frozen=True)
class ErrorStatistics:
    """Errors against a reference library, over all elements of all samples.

    Attributes:
        largest: maximum absolute error, in the output's units.
        rmse: root mean square error.
        snr_db: signal-to-noise ratio in dB; infinite without errors.
        same_class: number of samples with the same predicted class; None if the model is not a classifier.
    """

    largest: float
    rmse: float
    snr_db: float
    same_class: int | None


def distance(ours: Sequence[Sample], theirs: Sequence[Sample]) -> ErrorStatistics:
    """Compare outputs, sample by sample."""
    values, expected = (
        np.concatenate([np.asarray(array, np.float64).ravel() for sample in samples for array in sample])
        for samples in (ours, theirs)
    )
    noise, signal = float(np.mean((values - expected) ** 2)), float(np.mean(expected**2))
    both = [(prediction(one), prediction(other)) for one, other in zip(ours, theirs, strict=True)]
    same = None if (None, None) in both else sum(one == other for one, other in both)
    snr = math.inf if not noise else 10 * math.log10(signal / noise) if signal else -math.inf
    return ErrorStatistics(float(np.abs(values - expected).max()), math.sqrt(noise), snr, same)


@dataclass(frozen=True)
class Row:
    """A model on a board.

    Attributes:
        count: cost of one run in ``unit``: instructions of a virtual board, cycles of a physical one.
        flash_bytes, ram_bytes: sizes of the image; None if the board is a process.
        accuracy: 0 to 1, if the classes are known.
        why: reason if it does not fit; then there are no figures.
        time, ms: duration as text with its range, and as a number; only if cycles were counted.
    """

    model: str
    board: str
    count: int | None = None
    unit: str = ""
    flash_bytes: int | None = None
    ram_bytes: int | None = None
    accuracy: float | None = None
    why: str = ""
    time: str = ""
    ms: float | None = None


class Comparison(tuple[Row, ...]):
    """Rows, which a notebook shows as a picture."""

    def _repr_html_(self) -> str:
        return draw(self)


def row_of(model: str, board: str, image: Firmware, results: Sequence[RunResult], labels: Sequence[int]) -> Row:
    """Return the row of a model that ran; ``labels`` are the true classes, if known."""
    # The maximum: users wait for the slowest.
    slowest = max(results, key=lambda result: result.count)
    own_memory = bool(image.board.memory)
    return Row(
        model,
        board,
        slowest.count or None,
        slowest.unit,
        image.flash_bytes if own_memory else None,
        image.ram_bytes if own_memory else None,
        confusion([result.outputs for result in results], labels).accuracy if labels else None,
        time=image.board.describe_time(slowest.count, slowest.unit),
        ms=image.board.milliseconds(slowest.count, slowest.unit),
    )


def draw(rows: Sequence[Row]) -> str:
    """Return the picture as SVG: a panel per figure, with a bar for each row that has it."""
    units = list(dict.fromkeys(row.unit for row in rows if row.count))
    panels = [
        *(
            _panel(f"{unit} of one run", [(row, row.count if row.unit == unit else None) for row in rows])
            for unit in units
        ),
        _panel("ms of one run", [(row, row.ms) for row in rows]),
        _panel("flash, bytes", [(row, row.flash_bytes) for row in rows]),
        _panel("RAM, bytes", [(row, row.ram_bytes) for row in rows]),
        _panel("accuracy, %", [(row, None if row.accuracy is None else 100 * row.accuracy) for row in rows]),
    ]
    models = list(dict.fromkeys(row.model for row in rows))
    panels_drawn = [panel for panel in panels if panel["bars"]]
    return (
        templates_of("utvm.session", html=True)
        .get_template("compare.svg.j2")
        .render(
            panels=panels_drawn,
            models=models,
            height=sum(40 + 36 * len(panel["bars"]) for panel in panels_drawn),
            shortened=_shorten,
        )
    )


def _shorten(name: str, width: int = _WIDTH) -> str:
    """Return the end of a name or path that fits, with an ellipsis if cut."""
    text = name
    while cell_len(text) > width:
        text = f"…{text[2:]}"
    return text


def _panel(title: str, values: Sequence[tuple[Row, float | None]]) -> dict[str, Any]:
    """Return a figure of the picture: title with unit, and per row the text and the length, 0 to 1."""
    known = [(row, value) for row, value in values if value is not None]
    largest = max((value for _, value in known), default=0.0) or 1.0
    bars = [(row, f"{value:,.1f}".removesuffix(".0"), value / largest) for row, value in known]
    return {"title": title, "bars": bars}
