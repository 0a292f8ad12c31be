"""Predictions as lines of text; numbers have all their digits.

The columns, in the order of ``--output``: ``label``; ``decision``, one for two classes (positive for the second), else
one per class; ``probability``, one per class; ``stability``. Classes are in the order of ``classes_``, ascending. A
regressor has ``prediction``, ``std``, and ``interval_low`` and ``interval_high`` of ``interval``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from dropmargin.cli.console import UsageError, label_texts
from dropmargin.cli.reading import SavedModel, explain_missing
from dropmargin.io.data import Dataset

# First characters of a formula, or white space that spreadsheets skip before one; also as full-width characters.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# The outputs of a regression.
_OF_NUMBERS = ("prediction", "std", "interval")


class PredictionWriter:
    """Formats the predictions of a model as the options of ``predict`` ask for; `columns` are their names."""

    def __init__(self, model: SavedModel, options: SimpleNamespace) -> None:
        self._model, self._options, self.n_rows = model, options, 0
        self._separator = "\t" if options.out.lower().removesuffix(".gz").endswith((".tsv", ".tab")) else ","
        self._noise = None if options.stability_noise is None else options.stability_noise.make()
        self._outputs = options.output or ("prediction" if model.predicts_numbers else "label",)
        for output in self._outputs:
            _check_output(output, model, self._noise)
        names = [] if model.predicts_numbers else label_texts(model.estimator.classes_)
        self._labels = np.array([self._text(name) for name in names], dtype=object)
        several = {"probability": names, "decision": names if len(names) > 2 else (), "interval": ("low", "high")}
        self.columns = [] if options.ids is None else [options.ids]
        for output in self._outputs:
            self.columns += [f"{output}_{name}" for name in several.get(output, ())] or [output]

    def blocks(self, parts: Iterable[Dataset]) -> Iterator[bytes]:
        """Yield the lines of each part of a file."""
        # The header is written with the first part, so not at all if the file cannot be read.
        head = "" if self._options.no_header else self._separator.join(map(self._cell, self.columns)) + "\n"
        for part in parts:
            try:
                cells = [column for output in self._outputs for column in self._cells(output, part.X)]
            except ValueError as error:
                raise explain_missing(error, self._options.data, self._model) from error
            if part.ids is not None:
                cells.insert(0, list(map(self._text, part.ids)))
            self.n_rows += part.X.shape[0]
            lines = map(self._separator.join, zip(*cells, strict=True))
            yield (head + "\n".join(lines) + "\n").encode()
            head = ""

    def _cells(self, output: str, X: Any) -> list[list[str]]:
        """Return the columns of an output; reading a number back gives the same value."""
        estimator = self._model.estimator
        if output == "label":
            return [self._labels[np.searchsorted(estimator.classes_, estimator.predict(X))].tolist()]
        compute = {
            "decision": lambda: estimator.decision_function(X),
            "probability": lambda: estimator.predict_proba(X),
            "stability": lambda: estimator.predict_stability(X, self._noise),
            "prediction": lambda: estimator.predict(X),
            "std": lambda: estimator.predict(X, return_std=True)[1],
            "interval": lambda: estimator.predict_interval(X, self._options.coverage),
        }
        values = compute[output]()
        return [list(map(repr, column)) for column in values.reshape(len(values), -1).astype(np.float64).T.tolist()]

    def _text(self, text: str) -> str:
        """Return the cell of a label or id, with ``--safe-csv`` so that a spreadsheet does not run it as a formula."""
        return self._cell(without_formula(text) if self._options.safe_csv else text)

    def _cell(self, text: str) -> str:
        """Return the text of a cell, in quotes if it needs them."""
        if text and not any(c in text for c in (self._separator, '"', "\n", "\r")) and text == text.strip():
            return text
        return '"' + text.replace('"', '""') + '"'


def without_formula(text: str) -> str:
    """Return a text that a spreadsheet does not run as a formula: a single quote is before what begins as one."""
    try:
        is_number = math.isfinite(float(text))
    except ValueError:
        is_number = False
    return f"'{text}" if text.startswith(_FORMULA_STARTS) and not is_number else text


def _check_output(output: str, model: SavedModel, noise: Any) -> None:
    """Refuse an output that the model does not have, before any data are read."""
    estimator, missing = model.estimator, getattr(model.estimator, "missing", "error")
    if (output in _OF_NUMBERS) != model.predicts_numbers:
        kind = "numbers" if model.predicts_numbers else "classes"
        problem = f"has a {type(estimator).__name__}, which predicts {kind}"
    elif output == "std" and missing != "conditional":
        problem = "has no standard deviations (train with --missing conditional)"
    elif output == "interval" and missing == "rescale":
        problem = "has --missing rescale (train with --missing conditional)"
    elif output == "interval" and not hasattr(estimator, "residual_deviation_"):
        problem = "does not know its residuals (train with more rows, in memory)"
    elif output == "probability" and not hasattr(estimator, "predict_proba"):
        is_ovo = getattr(estimator, "multi_class", "ovr") == "ovo" and len(estimator.classes_) > 2
        problem = f"has no probabilities ({'--multi-class ovo has none' if is_ovo else 'train with --loss logistic'})"
    elif output == "stability" and not hasattr(estimator, "predict_stability"):
        problem = f"has a {type(estimator).__name__}, which has no stability"
    elif output == "stability" and noise is None and estimator.noise is None:
        problem = "was trained without noise: add --stability-noise"
    else:
        return
    raise UsageError(f"--output {output}: {model.path} {problem}")
