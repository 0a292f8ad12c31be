"""Classes as outputs: one binary problem per class (one-vs-rest) or per pair of classes (one-vs-one).

Arrays in memory, files, clusters and streams of batches use the same list of outputs.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np

from dropmargin.typing import Array


class Output(NamedTuple):
    """A class against all others, or against one of them; then the rows of these two alone take part."""

    positive: int
    negative: int | None = None

    def targets(self, classes: Array) -> Array:
        """Return -1 or +1 for each row, given the index of its class."""
        return np.where(classes == self.positive, 1.0, -1.0)

    def takes_part(self, classes: Array) -> Array:
        """Return which rows take part."""
        if self.negative is None:
            return np.ones(len(classes), dtype=bool)
        return (classes == self.positive) | (classes == self.negative)


def binary_outputs(n_classes: int, multi_class: str) -> list[Output]:
    """Return the outputs of a classification: one for two classes, else one per class or per pair of classes."""
    if multi_class == "ovo" and n_classes > 2:
        return [Output(second, first) for first, second in combinations(range(n_classes), 2)]
    return [Output(k) for k in (range(n_classes) if n_classes > 2 else (1,))]
