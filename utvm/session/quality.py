# SPDX-License-Identifier: Apache-2.0
"""How good a model's answers are: against the right classes, and against another library's answers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler.model import Sample
from utvm.errors import ConfigError
from utvm.session.evaluation import prediction


@dataclass(frozen=True)
class Confusion:
    """What a classifier made of samples whose classes are known.

    Attributes:
        counts: how many samples of a class, the row, were taken for one of a class, the column.
    """

    counts: npt.NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        """The share of right answers, 0 to 1."""
        return float(np.trace(self.counts) / self.counts.sum())

    def recall(self, kind: int) -> float | None:
        """Return which share of a class was found; None where there was none of it."""
        return _share(self.counts[kind, kind], self.counts[kind].sum())

    def precision(self, kind: int) -> float | None:
        """Return which share of what was taken for a class is of it; None where nothing was."""
        return _share(self.counts[kind, kind], self.counts[:, kind].sum())


def _share(part: np.int64, whole: np.int64) -> float | None:
    return float(part / whole) if whole else None


def confusion(answers: Sequence[Sequence[npt.NDArray[Any]]], labels: Sequence[int]) -> Confusion:
    """Count a classifier's answers.

    Args:
        answers: for each sample, the outputs.
        labels: the right classes.
    """
    predicted = [kind for kind in map(prediction, answers) if kind is not None]
    if len(predicted) < len(answers) or not answers:
        raise ConfigError("labels are for a model with one output, a score for each class")
    classes = answers[0][0].size
    if wrong := [label for label in labels if not 0 <= label < classes]:
        raise ConfigError(f"label {wrong[0]} is no class of the model, which has {classes}", "they count from 0")
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (list(labels), predicted), 1)
    return Confusion(counts)


@dataclass(frozen=True)
class ErrorStatistics:
    """How far answers are from another library's, over all elements of all samples.

    Attributes:
        largest: the largest difference of two elements, in the output's own units.
        rmse: root of the mean of their squares.
        snr_db: the other's signal to the difference, in decibels; infinite where there is none.
        same_class: samples of which both have the same best class; None where the model is no classifier.
    """

    largest: float
    rmse: float
    snr_db: float
    same_class: int | None


def distance(ours: Sequence[Sample], theirs: Sequence[Sample]) -> ErrorStatistics:
    """Compare outputs, sample by sample."""
    a, b = (
        np.concatenate([np.asarray(array, np.float64).ravel() for sample in samples for array in sample])
        for samples in (ours, theirs)
    )
    noise, signal = float(np.mean((a - b) ** 2)), float(np.mean(b**2))
    both = [(prediction(one), prediction(other)) for one, other in zip(ours, theirs, strict=True)]
    same = None if (None, None) in both else sum(one == other for one, other in both)
    snr = math.inf if not noise else 10 * math.log10(signal / noise) if signal else -math.inf
    return ErrorStatistics(float(np.abs(a - b).max()), math.sqrt(noise), snr, same)
