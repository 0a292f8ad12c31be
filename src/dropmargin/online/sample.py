"""A bounded random sample of the rows of a stream: it replaces their summary where the mix of the classes changes.

A quadratic summary is exact at the coefficients where it was made. Coefficients for rows of mostly one class are far
from those for all classes: there the loss of these rows is flat, and a flat summary has no weight later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dropmargin.data import Rows, join_rows, stack_rows
from dropmargin.typing import Array

# The most rows and stored entries of a sample, but at least some rows of each class. All classes have the same share.
_MOST_ROWS, _MOST_ENTRIES, _LEAST_OF_CLASS = 4096, 2**23, 32
# The mix of the classes has changed if the rows of a class differ from their expected number by this many standard
# deviations and by this share of it.
_DEVIATIONS, _SHARE = 4.0, 0.5


@dataclass(frozen=True)
class Sample:
    """Random rows of each class of a stream, and the number and the weight of all rows of a class.

    Each row has a random key between 0 and 1. A class of ``n`` rows has those with keys below ``class_rows / n`` in the
    sample. Rows with larger keys are removed when twice as many are stored.
    """

    counts: Array  # (n_classes,), of all rows
    weights: Array  # (n_classes,), of all rows
    class_rows: int = 0  # the expected number of rows of a class with at least as many
    parts: tuple[Rows, ...] = ()
    keys: tuple[Array, ...] = ()  # of the rows of each part

    @classmethod
    def start(cls, n_classes: int) -> Sample:
        """Return the sample of no rows."""
        return cls(np.zeros(n_classes), np.zeros(n_classes))

    @property
    def n_rows(self) -> int:
        """The number of all rows."""
        return int(self.counts.sum())

    def has_other_classes(self, y: Array) -> bool:
        """Return whether the classes of some rows are mixed unlike those of the rows before."""
        n, n_before = len(y), self.n_rows
        expected = self.counts * (n / n_before)
        deviation = np.abs(np.bincount(y, minlength=len(expected)) - expected)
        # One more: the counts of rare classes are not normal.
        spread = np.sqrt(expected * (1.0 + n / n_before) + 1.0)
        return bool(np.any((deviation > _DEVIATIONS * spread) & (deviation > _SHARE * expected)))

    def count(self, batch: Rows) -> Sample:
        """Return the same sample with more rows counted."""
        counts = np.bincount(batch.y, minlength=len(self.counts))
        weights = np.bincount(batch.y, batch.sample_weight, minlength=len(self.counts))
        return replace(self, counts=self.counts + counts, weights=self.weights + weights)

    def after(self, batch: Rows) -> Sample:
        """Return the sample after some more rows."""
        n_classes, class_rows = len(self.counts), self.class_rows
        if not self.n_rows:
            n_rows = min(_MOST_ROWS, _MOST_ENTRIES * len(batch) // max(1, batch.X.size))
            class_rows = max(_LEAST_OF_CLASS, n_rows // n_classes)
        out = self.count(batch)
        keys = np.random.default_rng(self.n_rows).random(len(batch))
        own = np.flatnonzero(keys * out.counts[batch.y] < class_rows)
        if not len(own):
            return out
        out = replace(out, class_rows=class_rows, parts=(*self.parts, batch.take(own)), keys=(*self.keys, keys[own]))
        return out._compact() if sum(map(len, out.parts)) > 2 * n_classes * class_rows else out

    def rows(self) -> Rows:
        """Return the rows of the sample; those of a class have the weight of all its rows."""
        (rows,) = self._compact().parts
        own = np.bincount(rows.y, rows.sample_weight, minlength=len(self.weights))
        factors = self.weights / np.where(own > 0.0, own, 1.0)
        return Rows(rows.X, rows.y, rows.sample_weight * factors[rows.y])

    def _compact(self) -> Sample:
        rows, keys = join_rows(list(self.parts), stack_rows), np.concatenate(self.keys)
        own = np.flatnonzero(keys * self.counts[rows.y] < self.class_rows)
        return replace(self, parts=(rows.take(own),), keys=(keys[own],))
