"""The scores of a model, summed over the parts of a file: the confusion matrix, or the errors of a regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix, mean_absolute_error, r2_score, root_mean_squared_error

from dropmargin.cli.console import label_texts, plural, table_text
from dropmargin.typing import Array

# The confusion matrix is printed, and written as JSON, for at most so many classes.
_MAX_PRINTED, _MAX_JSON = 10, 200


class ConfusionCounter:
    """Sums the confusion matrix and the log loss over the parts of a file."""

    def __init__(self, classifier: Any) -> None:
        self._classifier = classifier
        n_classes = len(classifier.classes_)
        # The last row counts the labels that the model does not know, and the last column is zero.
        self._counts = np.zeros((n_classes + 1, n_classes + 1), dtype=np.int64)
        self._log_loss = 0.0 if hasattr(classifier, "predict_log_proba") else None

    def add(self, X: Any, y: Any) -> None:
        classes = self._classifier.classes_
        if (y.dtype.kind in "OU") != (classes.dtype.kind in "OU"):
            raise ValueError(f"the labels are such as {y[:3].tolist()}, but those of the model {classes[:3].tolist()}")
        n_classes = len(classes)
        codes = np.minimum(np.searchsorted(classes, y), n_classes - 1)
        codes = np.where(classes[codes] == y, codes, n_classes)
        predicted = np.searchsorted(classes, self._classifier.predict(X))
        self._counts += confusion_matrix(codes, predicted, labels=np.arange(n_classes + 1))
        if self._log_loss is not None:
            known = np.flatnonzero(codes < n_classes)
            self._log_loss -= float(self._classifier.predict_log_proba(X)[known, codes[known]].sum())

    def facts(self) -> dict[str, Any]:
        """Return the scores; a recall, precision or F1 score without rows is NaN."""
        labels, counts = self._classifier.classes_.tolist(), self._counts
        rows, predicted, hits = (sums[:-1] for sums in (counts.sum(axis=1), counts.sum(axis=0), counts.diagonal()))
        with np.errstate(invalid="ignore"):
            recall, precision, f1 = hits / rows, hits / predicted, 2.0 * hits / (rows + predicted)
        correct, n_rows, n_unknown = int(hits.sum()), int(counts.sum()), int(counts[-1].sum())
        accuracy = correct / n_rows
        facts: dict[str, Any] = {"rows": n_rows, "accuracy": accuracy, "error": 1.0 - accuracy, "correct": correct}
        if self._log_loss is not None:
            facts["log_loss"] = self._log_loss / max(n_rows - n_unknown, 1)
        facts["unknown_labels"] = n_unknown
        facts["classes"] = [
            {"label": label, "rows": int(rows[k]), "recall": recall[k], "precision": precision[k], "f1": f1[k]}
            for k, label in enumerate(labels)
        ]
        return facts | ({"confusion": counts[:-1, :-1]} if len(labels) <= _MAX_JSON else {})

    def text(self) -> str:
        """Return the scores as text, with the confusion matrix if it is small."""
        facts = self.facts()
        labels = label_texts(self._classifier.classes_)
        lines = [
            f"accuracy  {facts['accuracy']:.4f}  ({facts['correct']} of {plural(facts['rows'], 'row')})",
            f"error     {facts['error']:.4f}",
            *([f"log loss  {facts['log_loss']:.4f}"] if "log_loss" in facts else []),
        ]
        names = ("recall", "precision", "f1")
        rows = [
            [label, str(entry["rows"]), *("-" if np.isnan(entry[name]) else f"{entry[name]:.4f}" for name in names)]
            for label, entry in zip(labels, facts["classes"], strict=True)
        ]
        lines += ["", table_text(["label", "rows", *names], rows)]
        if len(labels) <= _MAX_PRINTED:
            counts = self._counts[:-1, :-1].tolist()
            cells = [[label, *map(str, row)] for label, row in zip(labels, counts, strict=True)]
            lines += ["", table_text(["label \\ predicted", *labels], cells)]
        return "\n".join(lines)


class ErrorCounter:
    """Collects the targets and the predictions of a regressor over the parts of a file."""

    def __init__(self, regressor: Any) -> None:
        self._regressor = regressor
        self._parts: list[tuple[Array, Array]] = []

    def add(self, X: Any, y: Any) -> None:
        if y.dtype.kind not in "iuf" or not np.isfinite(y).all():
            raise ValueError(f"the labels are such as {y[:3].tolist()}, but the model predicts numbers")
        self._parts.append((y, self._regressor.predict(X)))

    def facts(self) -> dict[str, Any]:
        """Return the errors; R^2 of equal targets is not finite."""
        y, predicted = map(np.concatenate, zip(*self._parts, strict=True))
        return {
            "rows": len(y),
            "rmse": root_mean_squared_error(y, predicted),
            "mae": mean_absolute_error(y, predicted),
            "r2": r2_score(y, predicted, force_finite=False),
        }

    def text(self) -> str:
        facts = self.facts()
        r2 = f"{facts['r2']:.4f}" if np.isfinite(facts["r2"]) else "-"
        rows = plural(facts["rows"], "row")
        return f"RMSE  {facts['rmse']:.6g}  ({rows})\nMAE   {facts['mae']:.6g}\nR2    {r2}"
