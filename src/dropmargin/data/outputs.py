"""Classes as outputs: one binary problem per class (one-vs-rest) or per pair of classes (one-vs-one).

Rows in memory, files, clusters and streams of batches use the same list of outputs. A regression is one output whose
targets are the numbers themselves; to this module, it has one class.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from dropmargin.typing import Array


class Output(NamedTuple):
    """A class against all others, or against one of them; then the rows of these two alone take part.

    Without a class, it is the output of a regression.
    """

    positive: int | None = None
    negative: int | None = None

    def takes_part(self, classes: Array) -> Array:
        """Return which rows take part, given the index of each row's class."""
        if self.negative is None:
            return np.ones(len(classes), dtype=bool)
        return (classes == self.positive) | (classes == self.negative)


def binary_outputs(n_classes: int, multi_class: str) -> list[Output]:
    """Return the outputs: one for two classes, else one per class or per pair of classes; one for a regression."""
    if n_classes == 1:
        return [Output()]
    if multi_class == "ovo" and n_classes > 2:
        return [Output(second, first) for first, second in combinations(range(n_classes), 2)]
    return [Output(k) for k in (range(n_classes) if n_classes > 2 else (1,))]


def output_targets(outputs: Sequence[Output], y: Array) -> Array:
    """Return the targets, a column per output: -1 or +1 given the index of each row's class, or numbers as they are."""
    if outputs[0].positive is None:
        return np.repeat(y[:, None], len(outputs), axis=1)
    return np.where(y[:, None] == [output.positive for output in outputs], 1.0, -1.0)


def class_sums(y: Array, values: Array, n_classes: int) -> Array:
    """Return the sum of some values of the rows for each class; rows of the class -1 are left out."""
    if n_classes == 1:
        return np.array([values.sum()])
    return np.bincount(y + 1, weights=values, minlength=n_classes + 1)[1:]


def target_weights(outputs: Sequence[Output], class_weights: Array) -> Array:
    """Return the weight of the rows with target +1, and of those with -1, a column per output.

    All rows of a regression are counted as one target.
    """
    if outputs[0].positive is None:
        return np.repeat([class_weights, np.zeros(1)], len(outputs), axis=1)
    classes = np.arange(len(class_weights))
    # The others are added up: a difference would lose the digits of a small weight beside a large one.
    is_positive = output_targets(outputs, classes) > 0.0
    is_negative = np.stack([output.takes_part(classes) for output in outputs], axis=1) & ~is_positive
    return np.stack([np.where(own, class_weights[:, None], 0.0).sum(axis=0) for own in (is_positive, is_negative)])
