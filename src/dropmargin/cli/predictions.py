"""Predictions as lines of text: exact, and without a step of Python per cell where it can be helped.

Columns are, in the order in which they are asked for: ``label``; ``decision``, one for two classes (positive for the
second) or one per class; ``probability``, one per class; ``stability``. Classes come in the order of ``classes_``,
which is ascending.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dropmargin.cli.console import UsageError
from dropmargin.cli.reading import Part, SavedModel, explain_missing
from dropmargin.io.data.cells import parse_number
from dropmargin.typing import Array

# What a formula begins with, or what spreadsheets skip in front of one; also as wide characters of East Asia.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


class Table:
    """What is to be written for a model.

    Parameters
    ----------
    model : SavedModel
    outputs : tuple of {"label", "decision", "probability", "stability"}
    noise : Noise or None
        For ``stability``; by default that of the model.
    separator : str
    safe : bool, default=False
        Whether labels that a spreadsheet would take for a formula get a single quote in front.
    """

    def __init__(
        self, model: SavedModel, outputs: tuple[str, ...], noise: Any, separator: str, *, safe: bool = False
    ) -> None:
        self._model, self._outputs, self._noise, self._separator = model, outputs, noise, separator
        self.n_rows = 0
        for output in outputs:
            _check_output(output, model, noise)
        self._names = label_texts(model.classifier.classes_)
        self.columns = [column for output in outputs for column in self._columns_of(output)]
        labels = [_without_formula(name) for name in self._names] if safe else self._names
        self._labels = np.array([self._cell(label).encode() for label in labels], dtype=object)

    def _columns_of(self, output: str) -> list[str]:
        several = output == "probability" or (output == "decision" and len(self._names) > 2)
        return [f"{output}_{name}" for name in self._names] if several else [output]

    def blocks(self, parts: Iterable[Part], path: str, *, header: bool) -> Iterator[bytes]:
        """Yield the lines of each part of a file."""
        # The header goes with the first part: nothing is said of a file that cannot be read.
        start = (self._separator.join(map(self._cell, self.columns)) + "\n").encode() if header else b""
        for part in parts:
            try:
                block = start + self._lines(part.X)
            except ValueError as error:
                raise explain_missing(error, path, self._model) from error
            self.n_rows += part.X.shape[0]
            yield block
            start = b""

    def _lines(self, X: Any) -> bytes:
        if self._outputs == ("label",):  # by far the most frequent wish
            ended = self._labels + b"\n"
            return b"".join(ended[self._codes(X)].tolist())
        cells = [column for output in self._outputs for column in self._cells(output, X)]
        rows = map(self._separator.encode().join, zip(*cells, strict=True))
        return b"\n".join(rows) + b"\n"

    def _cells(self, output: str, X: Any) -> list[list[bytes]]:
        """Return columns of cells; numbers have as many digits as it takes to read them back exactly."""
        classifier = self._model.classifier
        if output == "label":
            return [self._labels[self._codes(X)].tolist()]
        if output == "decision":
            values = classifier.decision_function(X)
        elif output == "probability":
            values = classifier.predict_proba(X)
        else:
            values = classifier.predict_stability(X, self._noise)
        return [
            [repr(value).encode() for value in column]
            for column in values.reshape(len(values), -1).astype(np.float64).T.tolist()
        ]

    def _codes(self, X: Any) -> Array:
        classes = self._model.classifier.classes_
        return np.searchsorted(classes, self._model.classifier.predict(X))

    def _cell(self, text: str) -> str:
        """Return a cell, in quotes if it would be read as something else without."""
        if text and not any(c in text for c in (self._separator, '"', "\n", "\r")) and text == text.strip():
            return text
        return '"' + text.replace('"', '""') + '"'


def label_texts(classes: Array) -> list[str]:
    """Return labels as text: numbers as they are read back exactly."""
    return [label if isinstance(label, str) else repr(label) for label in classes.tolist()]


def _without_formula(label: str) -> str:
    """Return a label that a spreadsheet does not run; numbers, which may begin with a sign, stay."""
    return f"'{label}" if label.startswith(_FORMULA_STARTS) and parse_number(label) is None else label


def _check_output(output: str, model: SavedModel, noise: Any) -> None:
    """Refuse what a model cannot give, before any data are read."""
    classifier = model.classifier
    if output == "probability" and not hasattr(classifier, "predict_proba"):
        why = "pairs of classes have none" if _is_by_pairs(classifier) else "train with --loss logistic"
        raise UsageError(f"{model.path} gives no probabilities, only labels and decisions: {why}")
    if output == "stability":
        if not hasattr(classifier, "predict_stability"):
            raise UsageError(f"{model.path} holds {type(classifier).__name__}, which has no predict_stability")
        if noise is None and classifier.noise is None:
            raise UsageError(f"{model.path} was trained without noise: choose a noise by --stability-noise")


def _is_by_pairs(classifier: Any) -> bool:
    return getattr(classifier, "multi_class", "ovr") == "ovo" and len(classifier.classes_) > 2
