"""Sparse matrices whose arrays do not fit together, and a script that passes each to one method of the library.

``python malformed.py METHOD`` prints one JSON line per matrix, as soon as the method has returned or raised. A process
that a matrix kills prints no further line.
"""

from __future__ import annotations

import json
import sys
import warnings
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse

N_ROWS, N_FEATURES = 40, 12
_FAR = 2**30


def make(form: str = "csr") -> Any:
    """Return a valid matrix of that format; rows have two entries at least."""
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((N_ROWS, N_FEATURES)) < 0.4, rng.uniform(0.1, 1.0, (N_ROWS, N_FEATURES)), 0.0)
    dense[:, 3:5] = rng.uniform(0.1, 1.0, (N_ROWS, 2))
    blocks = {"blocksize": (4, 3)} if form == "bsr" else {}
    return getattr(sparse, f"{form}_matrix")(dense, **blocks)


def _put(form: str, name: str, where: int, value: int) -> Any:
    X = make(form)
    array = getattr(X, name).copy()
    array[where] = value
    setattr(X, name, array)
    return X


def _cut(form: str, name: str, part: slice) -> Any:
    X = make(form)
    setattr(X, name, getattr(X, name)[part].copy())
    return X


def _turn(name: str, change: Any) -> Any:
    X = make()
    setattr(X, name, change(getattr(X, name)))
    return X


def _shape(shape: tuple[int, int]) -> Any:
    X = make()
    X._shape = shape
    return X


def _lists(indices: list[int], values: list[float]) -> Any:
    X = make("lil")
    X.rows[3], X.data[3] = indices, values
    return X


BROKEN = {
    "an index far too large": lambda: _put("csr", "indices", 5, _FAR),
    "an index of -1": lambda: _put("csr", "indices", 5, -1),
    "an unsigned index of 2**63": lambda: _turn("indices", lambda a: np.append(a[1:].astype(np.uint64), 2**63 + 1)),
    "indptr goes down": lambda: _put("csr", "indptr", 3, make().nnz),
    "indptr below zero": lambda: _put("csr", "indptr", 3, -5),
    "indptr begins late": lambda: _put("csr", "indptr", 0, 2),
    "indptr ends far too late": lambda: _put("csr", "indptr", -1, _FAR),
    "indptr too short": lambda: _cut("csr", "indptr", slice(-3)),
    "indptr empty": lambda: _cut("csr", "indptr", slice(0)),
    "values too few": lambda: _cut("csr", "data", slice(-9)),
    "indices too few": lambda: _cut("csr", "indices", slice(-9)),
    "indices are floats": lambda: _turn("indices", lambda a: a.astype(float)),
    "indptr is floats": lambda: _turn("indptr", lambda a: a.astype(float)),
    "indices have two dimensions": lambda: _turn("indices", lambda a: a[:, None]),
    "a shape of more rows": lambda: _shape((N_ROWS + 5, N_FEATURES)),
    "a shape of fewer columns": lambda: _shape((N_ROWS, N_FEATURES - 5)),
    "csc: an index far too large": lambda: _put("csc", "indices", 5, _FAR),
    "csc: indptr far too large": lambda: _put("csc", "indptr", 3, _FAR),
    "coo: a row far too large": lambda: _put("coo", "row", 3, _FAR),
    "coo: a column far too large": lambda: _put("coo", "col", 3, _FAR),
    "coo: values too few": lambda: _cut("coo", "data", slice(-4)),
    "bsr: an index far too large": lambda: _put("bsr", "indices", 1, _FAR),
    "lil: an index far too large": lambda: _lists([_FAR], [1.0]),
    "lil: values too few": lambda: _lists([1, 2, 3], [1.0]),
    "dia: offsets too many": lambda: _cut("dia", "data", slice(-3)),
}


def _reverse_row(X: Any) -> Any:
    own = slice(X.indptr[1], X.indptr[2])
    X.indices[own], X.data[own] = X.indices[own][::-1].copy(), X.data[own][::-1].copy()
    return X


def _split_entry(X: Any) -> Any:
    """Store the first entry as two halves."""
    half = X.data[:1] / 2.0
    indptr = X.indptr + np.append(0, np.ones(N_ROWS, dtype=X.indptr.dtype))
    parts = np.concatenate([half, half, X.data[1:]]), np.append(X.indices[0], X.indices), indptr.astype(np.int32)
    return sparse.csr_matrix(parts, shape=X.shape)


def _with_arrays(change: Any) -> Any:
    X = make()
    X.data, X.indices, X.indptr = change(X.data, X.indices, X.indptr)
    return X


def _locked(*arrays: Any) -> Any:
    for array in arrays:
        array.setflags(write=False)
    return arrays


VALID = {
    "as it is": make,
    "read-only": lambda: _with_arrays(_locked),
    "int64": lambda: _with_arrays(lambda a, i, p: (a, i.astype(np.int64), p.astype(np.int64))),
    "uint32": lambda: _with_arrays(lambda a, i, p: (a, i.astype(np.uint32), p.astype(np.uint32))),
    "big-endian": lambda: _with_arrays(lambda a, i, p: (a.astype(">f8"), i.astype(">i4"), p)),
    "room at the end": lambda: _with_arrays(lambda a, i, p: (np.append(a, np.nan), np.append(i, _FAR), p)),
    "unsorted": lambda: _reverse_row(make()),
    "duplicates": lambda: _split_entry(make()),
    **{form: (lambda form=form: make(form)) for form in ("csc", "coo", "bsr", "lil", "dia", "dok")},
}


@cache
def fitted(**params: Any) -> Any:
    """Return a model of the valid matrix, which no method changes."""
    from dropmargin import DropoutLogisticRegression

    return DropoutLogisticRegression(noise=0.2, **params).fit(make(), np.arange(N_ROWS) % 2)


def call(method: str, X: Any) -> Any:
    """Return numbers that a method of the library computes from the matrix."""
    from dropmargin import DropoutLogisticRegression, NoiseTransformer, deletion_curve, estimate_dropout_rates

    y = np.arange(N_ROWS) % 2
    model = DropoutLogisticRegression(noise=0.2)
    if method == "fit":
        return model.fit(X, y).coef_
    if method == "partial_fit":
        return model.partial_fit(X, y, classes=[0, 1]).coef_
    if method == "NoiseTransformer":
        return NoiseTransformer(0.0).fit_transform(X).toarray()
    if method == "estimate_dropout_rates":
        return estimate_dropout_rates(make(), X)
    if method == "predict with missing":
        return fitted(missing="rescale").decision_function(X)
    if method == "deletion_curve":
        return deletion_curve(fitted(), X, y, levels=[0.0, 1.0], n_repeats=1, random_state=0, verbose=0).mean
    return getattr(fitted(), method)(X)


def _arrays(X: Any) -> list[bytes]:
    return [np.asarray(array).tobytes() for array in vars(X).values() if isinstance(array, np.ndarray)]


def main(method: str) -> None:
    """Try every matrix."""
    warnings.simplefilter("ignore")
    expected = call(method, make())
    for name, broken in BROKEN.items():
        try:
            call(method, broken())
            outcome = "no error"
        except Exception as error:
            outcome = type(error).__name__
        print(json.dumps([method, name, outcome]), flush=True)
    for name, valid in VALID.items():
        X = valid()
        before = _arrays(X)
        is_right = np.allclose(call(method, X), expected, rtol=1e-9, atol=1e-12)
        outcome = "right" if is_right and before == _arrays(X) else "wrong, or the matrix was changed"
        print(json.dumps([method, name, outcome]), flush=True)


if __name__ == "__main__":
    for method in sys.argv[1:]:
        main(method)
