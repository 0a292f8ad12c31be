"""Ways to train random Fourier features so that they survive lost cells: python -m benchmarks.kernel_features.

1,500 training rows, 500 Fourier features with the linear ones beside them, logistic loss, ``C=30``; the error is that
on
1,500 other rows, which choose nothing. At prediction all have the expected features given the
observed cells. Prints the error with 0 / 40 / 80 % of the cells lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks.lost_columns import read
from dropmargin import DropoutLogisticRegression, FourierFeatures
from dropmargin.tables import TableEncoder

N_ROWS, N_COMPONENTS, LEVELS = 1500, 500, (0.0, 0.4, 0.8)


def dropout_means(features: FourierFeatures, X: Any, rate: float) -> Any:
    """Return the mean of the features under dropout towards the mean, by characteristic functions."""
    product = np.exp(1j * features.phases_)[None, :].repeat(len(X), axis=0)
    for omega, mean, x in zip(features.omegas_, features.feature_means_, X.T, strict=True):
        kept = mean + (x - mean) / (1.0 - rate)
        product *= rate * np.exp(1j * omega * mean) + (1.0 - rate) * np.exp(1j * np.outer(kept, omega))
    return np.hstack([np.sqrt(2.0 / product.shape[1]) * product.real, X])


def lost(X: Any, rate: Any, rng: np.random.Generator) -> Any:
    """Return rows with deleted cells."""
    return np.where(rng.random(X.shape) < rate, np.nan, X)


def errors(predict: Any, X: Any, y: Any) -> str:
    """Return the errors at the levels."""
    rng = np.random.default_rng(1)
    return " ".join(f"{np.mean(predict(lost(X, level, rng)) != y):.3f}" for level in LEVELS)


def bound_coefficients(copies: Any, y: Any, C: float = 30.0) -> tuple[Any, Any]:
    """Return classes and coefficients that minimise the paper's logistic bound, moments over the copies of a row.

    The moments of a score are its mean ``m`` over the copies and its mean square ``r^2 = m^2 + v``; the bound is
    ``log 2cosh(r / 2) - y m / 2``, one class against the rest. A row weighs as much as its copies.
    """
    C *= len(copies)
    classes, Z = np.unique(y), np.stack([np.hstack([copy, np.ones((len(copy), 1))]) for copy in copies])
    signs, penalised = np.where(y[:, None] == classes, 1.0, -1.0), np.append(np.ones(Z.shape[2] - 1), 0.0)[:, None]

    def objective(flat: Any) -> tuple[float, Any]:
        W = flat.reshape(Z.shape[2], -1)
        scores = Z @ W
        r = np.sqrt(np.square(scores).mean(axis=0)) + 1e-9
        value = C * np.sum(np.logaddexp(0.5 * r, -0.5 * r) - 0.5 * signs * scores.mean(axis=0))
        by_score = (np.tanh(0.5 * r) / (2.0 * r) * scores - 0.5 * signs) / len(Z)
        gradient = penalised * W + C * np.einsum("knf,knc->fc", Z, by_score, optimize=True)
        return value + 0.5 * np.sum(penalised * W**2), gradient.ravel()

    start = np.zeros(Z.shape[2] * len(classes))
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return classes, found.x.reshape(Z.shape[2], -1)


def main() -> None:
    """Run two tables."""
    for name in ("penbased", "satimage"):
        table, y = read(name)
        X, _, y, _ = train_test_split(table.to_numpy(), y, train_size=0.5, random_state=0, stratify=y)
        X, other, y, y_other = train_test_split(X, y, train_size=N_ROWS, test_size=N_ROWS, random_state=1, stratify=y)
        scaler = StandardScaler().fit(X)
        A, B = scaler.transform(X), scaler.transform(other)
        rng = np.random.default_rng(0)
        copies = [A, *(lost(A, rng.uniform(0.0, 0.9, (len(A), 1)), rng) for _ in range(3))]

        def fit(rows: Any, labels: Any) -> Any:
            return DropoutLogisticRegression(noise=None, C=30.0, tol=1e-3).fit(rows, labels)

        features = FourierFeatures(1.0 / A.shape[1], N_COMPONENTS, linear=True, random_state=0).fit(A)
        ways = {
            "complete rows": features.transform(A),
            "mean under dropout, rate .1": dropout_means(features, A, 0.1),
            "mean under dropout, rate .3": dropout_means(features, A, 0.3),
            "copies with deleted cells": np.vstack([features.transform(copy) for copy in copies]),
        }
        for way, rows in ways.items():
            model = fit(rows, np.tile(y, len(rows) // len(A)))
            print(
                f"{name}, {way}: {errors(lambda Z, m=model, f=features: m.predict(f.transform(Z)), B, y_other)}",
                flush=True,
            )

        classes, W = bound_coefficients([features.transform(copy) for copy in copies], y)

        def bound(Z: Any, W: Any = W, features: Any = features, classes: Any = classes) -> Any:
            return classes[(features.transform(Z) @ W[:-1] + W[-1]).argmax(axis=1)]

        print(f"{name}, moments over the copies, in the paper's bound: {errors(bound, B, y_other)}", flush=True)

        def filled(Z: Any, features: Any = features) -> Any:  # the conditional mean without the factor
            mean = features.transform(Z)[:, N_COMPONENTS:]
            return features.transform(mean)

        model = fit(np.vstack([filled(copy) for copy in copies]), np.tile(y, 4))
        print(f"{name}, copies, without the factor: {errors(lambda Z, m=model: m.predict(filled(Z)), B, y_other)}")
        encoder = TableEncoder("fourier").fit(X)
        E = encoder.transform(X)
        wide = FourierFeatures(1.0 / A.shape[1], N_COMPONENTS, True, encoder.in_kernel_, 40, 0).fit(E)
        masks = [np.isnan(copy) for copy in copies]
        groups = np.array([int(column[1:]) for column in encoder.feature_columns_])
        model = fit(np.vstack([wide.transform(np.where(m[:, groups], np.nan, E)) for m in masks]), np.tile(y, 4))
        rows = encoder.transform(other)

        def predict(Z: Any, m: Any = model, w: Any = wide, rows: Any = rows, groups: Any = groups) -> Any:
            return m.predict(w.transform(np.where(np.isnan(Z)[:, groups], np.nan, rows)))

        print(f"{name}, copies, splines beside and in the Gaussian: {errors(predict, B, y_other)}", flush=True)


if __name__ == "__main__":
    main()
