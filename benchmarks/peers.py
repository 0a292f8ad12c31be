"""The models of the benchmark: ours, scikit-learn's, LIBLINEAR itself, and the paper's alternatives."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.svm import LinearSVC

from benchmarks.cases import Case
from dropmargin import DropoutLogisticRegression, DropoutNoise, DropoutSVC

OURS = ("DropoutSVC", "DropoutLogisticRegression")
#: The models of ``--short``.
SHORT = (*OURS, "DropoutSVC, reference zero", "DropoutSVC, groups", "LinearSVC hinge", "LinearSVC squared hinge")
# Features per group.
_GROUP_SIZE = 10


class ExplicitCopies:
    """LinearSVC on ten corrupted copies of the data, each of weight 1/10."""

    def __init__(self, noise: float, C: float, copies: int = 10) -> None:
        self.noise, self.copies = DropoutNoise(noise), copies
        self.model = LinearSVC(loss="hinge", C=C / copies)

    def fit(self, X: Any, y: Any) -> ExplicitCopies:
        samples = [self.noise.sample(X, random_state=seed) for seed in range(self.copies)]
        stacked = sparse.vstack(samples, format="csr") if sparse.issparse(X) else np.concatenate(samples)
        self.model.fit(stacked, np.tile(y, self.copies))
        return self

    def score(self, X: Any, y: Any) -> float:
        return self.model.score(X, y)


class Liblinear:
    """LIBLINEAR's own solver of the hinge loss (liblinear-official), without an intercept."""

    def __init__(self, C: float) -> None:
        self.C = C

    def fit(self, X: Any, y: Any) -> Liblinear:
        from liblinear.liblinearutil import train

        labels = np.asarray(y, dtype=np.float64)
        self.model = train(labels, sparse.csr_matrix(X), f"-s 3 -c {self.C} -q")
        return self

    def score(self, X: Any, y: Any) -> float:
        from liblinear.liblinearutil import predict

        labels, _, _ = predict(np.asarray(y, dtype=np.float64), sparse.csr_matrix(X), self.model, "-q")
        return float(np.mean(np.asarray(labels) == y))


def models(case: Case, shape: tuple[int, int], n_jobs: int) -> dict[str, Callable[[float], Any]]:
    """Return the constructors of the models, by name; each takes ``C``."""
    noise, (n_rows, n_features) = case.noise, shape
    from_zero = DropoutNoise(noise, reference="zero")
    grouped = DropoutNoise(noise, groups=np.arange(n_features) // _GROUP_SIZE)
    found: dict[str, Callable[[float], Any]] = {
        "DropoutSVC": lambda C: DropoutSVC(noise=noise, C=C, n_jobs=n_jobs),
        "DropoutLogisticRegression": lambda C: DropoutLogisticRegression(noise=noise, C=C, n_jobs=n_jobs),
        "DropoutSVC, reference zero": lambda C: DropoutSVC(noise=from_zero, C=C, n_jobs=n_jobs),
        "DropoutSVC, groups": lambda C: DropoutSVC(noise=grouped, C=C, n_jobs=n_jobs),
        "LinearSVC hinge": lambda C: LinearSVC(loss="hinge", C=C),
        "LinearSVC squared hinge": lambda C: LinearSVC(C=C, dual="auto"),
        "LogisticRegression": lambda C: LogisticRegression(C=C, max_iter=1_000),
        "SGDClassifier": lambda C: SGDClassifier(alpha=1.0 / (C * n_rows), random_state=0),
    }
    if case.slow_peers:
        found["DropoutSVC lbfgs"] = lambda C: DropoutSVC(noise=noise, C=C, n_jobs=n_jobs, solver="lbfgs")
        found["DropoutLogisticRegression lbfgs"] = lambda C: DropoutLogisticRegression(
            noise=noise, C=C, n_jobs=n_jobs, solver="lbfgs"
        )
        found["LinearSVC, 10 copies"] = lambda C: ExplicitCopies(noise, C)
        if importlib.util.find_spec("liblinear") is not None:
            found["LIBLINEAR hinge"] = Liblinear
    return found
