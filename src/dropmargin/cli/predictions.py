"""Predictions as lines of text; numbers have all their digits.

The columns, in the order of ``--output``: ``label``; ``decision``, one for two classes (positive for the second), else
one per class; ``probability``, one per class; ``stability``. Classes are in the order of ``classes_``, ascending. A
regressor has ``prediction``, ``std``, and ``interval_low`` and ``interval_high`` of ``interval``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dropmargin.cli.console import UsageError
from dropmargin.cli.formatting import label_texts
from dropmargin.cli.reading import Part, SavedModel, explain_missing
from dropmargin.typing import Array

# First characters of a formula, or white space that spreadsheets skip before one; also as full-width characters.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# The outputs of a regression.
_OF_NUMBERS = ("prediction", "std", "interval")


class PredictionWriter:
    """Formats the predictions of a model; ``noise`` is that of the stability, None for the noise of the model.

    ``coverage`` is the probability with which an interval contains the number.
    ``ids`` is the name of a column of the data that is the first column. With ``safe``, labels and ids that a
    spreadsheet would run as a formula have a single quote in front.
    """

    def __init__(
        self,
        model: SavedModel,
        outputs: tuple[str, ...] | None,
        noise: Any,
        separator: str,
        *,
        coverage: float = 0.9,
        ids: str | None = None,
        safe: bool = False,
    ) -> None:
        self._safe, self._coverage = safe, coverage
        if outputs is None:
            outputs = ("prediction",) if model.predicts_numbers else ("label",)
        self._model, self._outputs, self._noise, self._separator = model, outputs, noise, separator
        self.n_rows = 0
        for output in outputs:
            _check_output(output, model, noise)
        self._names = [] if model.predicts_numbers else label_texts(model.estimator.classes_)
        self.columns = [] if ids is None else [ids]
        self.columns += [column for output in outputs for column in self._columns_of(output)]
        labels = [_without_formula(name) for name in self._names] if safe else self._names
        self._labels = np.array([self._cell(label).encode() for label in labels], dtype=object)

    def _columns_of(self, output: str) -> list[str]:
        if output == "interval":
            return ["interval_low", "interval_high"]
        several = output == "probability" or (output == "decision" and len(self._names) > 2)
        return [f"{output}_{name}" for name in self._names] if several else [output]

    def blocks(self, parts: Iterable[Part], path: str, *, header: bool) -> Iterator[bytes]:
        """Yield the lines of each part of a file."""
        # The header is written with the first part, so not at all if the file cannot be read.
        start = (self._separator.join(map(self._cell, self.columns)) + "\n").encode() if header else b""
        for part in parts:
            try:
                block = start + self._lines(part.X, part.ids)
            except ValueError as error:
                raise explain_missing(error, path, self._model) from error
            self.n_rows += part.X.shape[0]
            yield block
            start = b""

    def _lines(self, X: Any, ids: list[str] | None) -> bytes:
        if self._outputs == ("label",) and ids is None:  # the default, without a Python object per cell
            ended = self._labels + b"\n"
            return b"".join(ended[self._codes(X)].tolist())
        cells = [column for output in self._outputs for column in self._cells(output, X)]
        if ids is not None:
            texts = map(_without_formula, ids) if self._safe else ids
            cells.insert(0, [self._cell(text).encode() for text in texts])
        rows = map(self._separator.encode().join, zip(*cells, strict=True))
        return b"\n".join(rows) + b"\n"

    def _cells(self, output: str, X: Any) -> list[list[bytes]]:
        """Return the columns of an output; reading a number back gives the same value."""
        estimator = self._model.estimator
        if output == "label":
            return [self._labels[self._codes(X)].tolist()]
        if output == "decision":
            values = estimator.decision_function(X)
        elif output == "probability":
            values = estimator.predict_proba(X)
        elif output == "stability":
            values = estimator.predict_stability(X, self._noise)
        elif output == "interval":
            values = estimator.predict_interval(X, self._coverage)
        else:
            values = estimator.predict(X) if output == "prediction" else estimator.predict(X, return_std=True)[1]
        return [
            [repr(value).encode() for value in column]
            for column in values.reshape(len(values), -1).astype(np.float64).T.tolist()
        ]

    def _codes(self, X: Any) -> Array:
        return np.searchsorted(self._model.estimator.classes_, self._model.estimator.predict(X))

    def _cell(self, text: str) -> str:
        """Return the text of a cell, in quotes if it needs them."""
        if text and not any(c in text for c in (self._separator, '"', "\n", "\r")) and text == text.strip():
            return text
        return '"' + text.replace('"', '""') + '"'


def _without_formula(label: str) -> str:
    """Return a label that a spreadsheet does not run as a formula; numbers are returned unchanged."""
    try:
        is_number = math.isfinite(float(label))
    except ValueError:
        is_number = False
    return f"'{label}" if label.startswith(_FORMULA_STARTS) and not is_number else label


def _check_output(output: str, model: SavedModel, noise: Any) -> None:
    """Refuse an output that the model does not have, before any data are read."""
    classifier = model.estimator
    if (output in _OF_NUMBERS) != model.predicts_numbers:
        name, kind = type(classifier).__name__, "numbers" if model.predicts_numbers else "classes"
        raise UsageError(f"--output {output}: {model.path} has a {name}, which predicts {kind}")
    if output == "std" and classifier.missing != "conditional":
        raise UsageError(f"--output std: {model.path} has no standard deviations (train with --missing conditional)")
    if output == "interval" and classifier.missing == "rescale":
        raise UsageError(f"--output interval: {model.path} has --missing rescale (train with --missing conditional)")
    if output == "interval" and not hasattr(classifier, "residual_deviation_"):
        raise UsageError(
            f"--output interval: {model.path} does not know its residuals (train with more rows, in memory)"
        )
    if output == "probability" and not hasattr(classifier, "predict_proba"):
        reason = "--multi-class ovo has none" if _is_ovo(classifier) else "train with --loss logistic"
        raise UsageError(f"--output probability: {model.path} has no probabilities ({reason})")
    if output == "stability":
        if not hasattr(classifier, "predict_stability"):
            raise UsageError(f"--output stability: {type(classifier).__name__} in {model.path} has no stability")
        if noise is None and classifier.noise is None:
            raise UsageError(f"--output stability: {model.path} was trained without noise: add --stability-noise")


def _is_ovo(classifier: Any) -> bool:
    return getattr(classifier, "multi_class", "ovr") == "ovo" and len(classifier.classes_) > 2
