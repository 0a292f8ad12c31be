"""Export to the model files of LIBLINEAR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dropmargin.io.atomic import Path, write_atomically
from dropmargin.io.model.exports.linear import has_intercept, is_multinomial, is_one_vs_one, linear_model
from dropmargin.typing import Array

_INT = np.iinfo(np.int32)
_FEATURES_PER_CHUNK = 4096


def export_liblinear(model: Any, path: Path) -> None:
    """Write a fitted model as a model file of LIBLINEAR, whose ``predict`` gives the same labels or numbers.

    If scores are log-odds, ``predict -b 1`` also gives the same probabilities.

    Parameters
    ----------
    model : estimator
        A fitted regressor of dropmargin, or a classifier whose labels are integers, or floats with integer values.
        Three or more classes must be one-vs-rest.
    path : str or path-like
        Written atomically, as by `dropmargin.save`.

    Raises
    ------
    ValueError
        If LIBLINEAR cannot express the model.
    """
    model = linear_model(model, "LIBLINEAR")
    if is_one_vs_one(model):
        raise ValueError("LIBLINEAR has no one-vs-one models, got multi_class='ovo'. Fit with multi_class='ovr'.")
    if is_multinomial(model):
        raise ValueError(
            "LIBLINEAR has no multinomial models and would compute other probabilities from the same scores, got "
            "multi_class='multinomial'. Fit with multi_class='ovr'."
        )
    labels = _labels(model.classes_) if hasattr(model, "classes_") else []
    if len(labels) == 2:
        labels = labels[::-1]  # LIBLINEAR's first label is that of positive scores
    write_atomically(path, _lines(model, labels))


def _labels(classes: Array) -> list[int]:
    """Return the labels as 32-bit integers."""
    if classes.dtype.kind in "iuf" and (classes == np.floor(classes)).all():
        labels = [int(label) for label in classes.tolist()]
        if _INT.min <= labels[0] and labels[-1] <= _INT.max:
            return labels
    raise ValueError(
        f"The labels of LIBLINEAR are integers of 32 bits, got classes {classes.tolist()[:5]}. Fit with integer "
        "labels, such as those of sklearn.preprocessing.LabelEncoder."
    )


def _solver_type(model: Any) -> str:
    if not hasattr(model, "classes_"):
        return "L2R_L2LOSS_SVR"
    return "L2R_LR" if hasattr(model, "predict_proba") else "L2R_L1LOSS_SVC_DUAL"


def _lines(model: Any, labels: list[int]) -> Iterator[bytes]:
    """Yield the file: a header, one line per feature with the coefficients of all outputs, and the intercepts."""
    n_features = model.coef_.shape[1]
    head = [
        f"solver_type {_solver_type(model)}",
        f"nr_class {len(labels) or 2}",
        *(["label " + " ".join(map(str, labels))] if labels else []),
        f"nr_feature {n_features}",
        f"bias {1 if has_intercept(model) else -1}",
        "w",
    ]
    yield ("\n".join(head) + "\n").encode()
    for begin in range(0, n_features, _FEATURES_PER_CHUNK):
        yield _rows(model.coef_[:, begin : begin + _FEATURES_PER_CHUNK].T)
    if has_intercept(model):
        yield _rows(model.intercept_[None, :])


def _rows(values: Array) -> bytes:
    """Return lines of numbers, with enough digits to be read back exactly."""
    rows = values.astype(np.float64).tolist()
    return "".join(" ".join(map(repr, row)) + " \n" for row in rows).encode()
