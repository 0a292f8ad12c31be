"""LIBLINEAR's text format, for its ``predict`` and for whatever else reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dropmargin.io.atomic import Path, write_atomically
from dropmargin.io.model.exports.linear import LinearModel, linear_model
from dropmargin.typing import Array

_INT = np.iinfo(np.int32)
_ROWS_AT_ONCE = 4096


def export_liblinear(model: Any, path: Path) -> None:
    """Write a fitted classifier as a model file of LIBLINEAR, whose ``predict`` then gives the same labels.

    Labels must be integers (or floats of integer value, as svmlight files give them), as in LIBLINEAR itself. If scores
    are log-odds, ``predict -b 1`` gives the same probabilities, too. Several classes must be one-vs-rest.

    Parameters
    ----------
    model : a fitted classifier of dropmargin
    path : str or path-like
        Written atomically, as by `dropmargin.save`.
    """
    plain = linear_model(model, "LIBLINEAR")
    if plain.one_vs_one:
        raise ValueError("LIBLINEAR has no one-vs-one models, got multi_class='ovo'. Fit with multi_class='ovr'.")
    labels = _labels(plain.classes)
    if len(labels) == 2:
        labels = labels[::-1]  # LIBLINEAR's first label is the one of positive scores
    write_atomically(path, _lines(plain, labels))


def _labels(classes: Array) -> list[int]:
    if classes.dtype.kind in "iuf" and (classes == np.floor(classes)).all():
        labels = [int(label) for label in classes.tolist()]
        if _INT.min <= labels[0] and labels[-1] <= _INT.max:
            return labels
    raise ValueError(
        f"LIBLINEAR's labels are integers of 32 bits, got classes {classes.tolist()[:5]}. Fit with integers for "
        "labels, such as those of sklearn.preprocessing.LabelEncoder."
    )


def _lines(plain: LinearModel, labels: list[int]) -> Iterator[bytes]:
    """Yield the file: a header, then one line per feature with one number per column, and the offset's line last."""
    solver = "L2R_LR" if plain.is_log_odds else "L2R_L1LOSS_SVC_DUAL"
    n_features = plain.coef.shape[1]
    head = [
        f"solver_type {solver}",
        f"nr_class {len(labels)}",
        "label " + " ".join(map(str, labels)),
        f"nr_feature {n_features}",
        f"bias {1 if plain.has_offset else -1}",
        "w",
    ]
    yield ("\n".join(head) + "\n").encode()
    for begin in range(0, n_features, _ROWS_AT_ONCE):
        yield _rows(plain.coef[:, begin : begin + _ROWS_AT_ONCE].T)
    if plain.has_offset:
        yield _rows(plain.intercept[None, :])


def _rows(values: Array) -> bytes:
    """Return lines of numbers, with as many digits as they need to be read back exactly."""
    rows = values.astype(np.float64).tolist()
    return "".join(" ".join(map(repr, row)) + " \n" for row in rows).encode()
