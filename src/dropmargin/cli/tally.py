"""Counts of predictions against labels: accuracy, recall and precision, the confusion matrix, the log loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.cli.predictions import label_texts
from dropmargin.cli.wording import plural, table_text
from dropmargin.typing import Array

# With more classes, the matrix is not printed; it is in the JSON object up to the second number.
_MOST_PRINTED, _MOST_LISTED = 10, 200


class Tally:
    """Adds up the rows of a file, part by part.

    Parameters
    ----------
    classifier : a fitted classifier
    """

    def __init__(self, classifier: Any) -> None:
        self._classifier = classifier
        self._labels = label_texts(classifier.classes_)
        n_classes = len(self._labels)
        self._counts = np.zeros((n_classes + 1, n_classes), dtype=np.int64)  # the last row: labels that are not known
        self._has_log_loss = hasattr(classifier, "predict_log_proba")
        self._log_loss = 0.0

    def add(self, X: Any, y: Any) -> None:
        """Count some rows."""
        classes = self._classifier.classes_
        n_classes = len(classes)
        actual = _codes(y, classes)
        predicted = np.searchsorted(classes, self._classifier.predict(X))
        flat = np.bincount(actual * n_classes + predicted, minlength=self._counts.size)
        self._counts += flat.reshape(self._counts.shape)
        if self._has_log_loss:
            known = actual < n_classes
            logs = self._classifier.predict_log_proba(X)
            self._log_loss -= float(logs[np.flatnonzero(known), actual[known]].sum())

    @property
    def n_unknown(self) -> int:
        """How many rows have a label that was not in the training data."""
        return int(self._counts[-1].sum())

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self._counts.sum())

    def facts(self) -> dict[str, Any]:
        """Return everything as plain data; shares of nothing are NaN."""
        right = np.diagonal(self._counts)
        with np.errstate(invalid="ignore"):
            recall, precision = right / self._counts[:-1].sum(axis=1), right / self._counts.sum(axis=0)
        classes = [
            {"label": label, "rows": int(n), "recall": float(r), "precision": float(p)}
            for label, n, r, p in zip(
                self._classifier.classes_.tolist(), self._counts[:-1].sum(axis=1), recall, precision, strict=True
            )
        ]
        accuracy = float(right.sum() / self.n_rows)
        facts: dict[str, Any] = {
            "rows": self.n_rows,
            "accuracy": accuracy,
            "error": 1.0 - accuracy,
            "correct": int(right.sum()),
        }
        if self._has_log_loss:
            facts["log_loss"] = self._log_loss / max(self.n_rows - self.n_unknown, 1)
        facts |= {"unknown_labels": self.n_unknown, "classes": classes}
        if len(classes) <= _MOST_LISTED:
            facts["confusion"] = self._counts[:-1].tolist()
        return facts

    def text(self) -> str:
        """Return everything as text, the confusion matrix only if it is small."""
        facts = self.facts()
        lines = [
            f"accuracy  {facts['accuracy']:.4f}  ({facts['correct']} of {plural(self.n_rows, 'row')})",
            f"error     {facts['error']:.4f}",
        ]
        if self._has_log_loss:
            lines.append(f"log loss  {facts['log_loss']:.4f}")
        rows = [
            [label, str(entry["rows"]), _share(entry["recall"]), _share(entry["precision"])]
            for label, entry in zip(self._labels, facts["classes"], strict=True)
        ]
        lines += ["", table_text(["label", "rows", "recall", "precision"], rows)]
        if len(rows) <= _MOST_PRINTED:
            counts = self._counts[:-1].tolist()
            cells = [[label, *map(str, row)] for label, row in zip(self._labels, counts, strict=True)]
            lines += ["", table_text(["label \\ predicted", *self._labels], cells)]
        return "\n".join(lines)


def _share(value: float) -> str:
    return "-" if value != value else f"{value:.4f}"


def _codes(y: Array, classes: Array) -> Array:
    """Return the index of each label among the classes, and their number for a label that is not one of them."""
    if (y.dtype.kind in "OU") != (classes.dtype.kind in "OU"):
        raise ValueError(f"the labels are {y[:3].tolist()} and so on, but those of the model {classes[:3].tolist()}")
    codes = np.searchsorted(classes, y)
    codes = np.minimum(codes, len(classes) - 1)
    return np.where(classes[codes] == y, codes, len(classes))
