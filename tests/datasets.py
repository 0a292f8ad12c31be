"""Small, seeded problems, and the measures by which the tests compare fitted models."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutSVC,
    GaussianNoise,
    LaplaceNoise,
    MCFClassifier,
    PoissonNoise,
)

#: At this relative gap of the objective, coefficients are exact to about ten digits.
TIGHT = 1e-24
N_FEATURES = 8


def make_binary(n_samples: int = 60, n_features: int = N_FEATURES, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return non-negative data with about a third of zeros, and two noisy classes of equal size."""
    X, scores, _ = _rows(n_samples, n_features, 1, seed)
    return X, (scores[:, 0] > np.median(scores[:, 0])).astype(int)


def make_multiclass(
    n_samples: int = 90, n_features: int = N_FEATURES, n_classes: int = 3, seed: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return non-negative data with about a third of zeros, and several noisy classes, all of them present."""
    X, scores, _ = _rows(n_samples, n_features, n_classes, seed)
    y = (scores - scores.mean(axis=0)).argmax(axis=1)
    assert len(np.unique(y)) == n_classes
    return X, y


def make_centred(n_samples: int = 200, n_features: int = 5, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return standard normal columns and two noisy classes that a linear rule tells apart at about 0.9."""
    rng = np.random.RandomState(seed)
    X = rng.randn(n_samples, n_features)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, (X @ np.linspace(1.0, -1.0, n_features) + 0.4 * rng.randn(n_samples) > 0.0).astype(int)


def make_sparse(n_samples: int, n_features: int, density: float, seed: int = 4) -> tuple[sparse.csr_array, np.ndarray]:
    """Return sparse counts and two classes."""
    rng = np.random.RandomState(seed)
    X = sparse.csr_array(sparse.random(n_samples, n_features, density, format="csr", random_state=rng))
    X.data = np.ceil(3.0 * X.data)
    scores = X @ rng.randn(n_features) + 0.1 * rng.randn(n_samples)
    return X, (scores > np.median(scores)).astype(int)


def _rows(n_samples: int, n_features: int, n_scores: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.RandomState(seed)
    X = np.abs(rng.randn(n_samples, n_features)) * (rng.rand(n_samples, n_features) < 0.7)
    weights = rng.randn(n_features, n_scores)
    return X, X @ weights + rng.randn(n_samples, n_scores), weights


def with_nan(X: np.ndarray, share: float = 0.3, seed: int = 5) -> np.ndarray:
    """Return a copy with a share of its entries NaN."""
    X = np.array(X)
    X[np.random.RandomState(seed).uniform(size=X.shape) < share] = np.nan
    return X


def explicit(X: np.ndarray) -> sparse.csr_array:
    """Return CSR with zeros left out and NaN stored."""
    stored = np.isnan(X) | (X != 0.0)
    rows, columns = np.nonzero(stored)
    return sparse.csr_array((X[stored], (rows, columns)), shape=X.shape)


def blankout(rate: Any) -> DropoutNoise:
    """Return the paper's dropout noise, which sets features to zero."""
    return DropoutNoise(rate, reference="zero")


def noises(n_features: int = N_FEATURES) -> dict[str, Any]:
    """Return one noise of every kind, with one value for all features and with one per feature."""
    return {
        "none": None,
        "dropout": 0.3,
        "dropout-per-feature": DropoutNoise(rate=np.linspace(0.0, 0.8, n_features), reference="zero"),
        "dropout-in-groups": DropoutNoise(rate=0.3, groups=np.arange(n_features) // 2),
        "gaussian": GaussianNoise(scale=0.3),
        "gaussian-per-feature": GaussianNoise(scale=np.linspace(0.0, 0.6, n_features)),
        "laplace": LaplaceNoise(scale=0.2),
        "poisson": PoissonNoise(),
    }


def estimators(**params: Any) -> dict[str, Any]:
    """Return one unfitted classifier per loss."""
    return {
        "svc": DropoutSVC(**params),
        "svc-gaussian": DropoutSVC(approximation="gaussian", **params),
        "logistic": DropoutLogisticRegression(**params),
        "logistic-gaussian": DropoutLogisticRegression(approximation="gaussian", **params),
        "mcf-quadratic": MCFClassifier("quadratic", **params),
        "mcf-exponential": MCFClassifier("exponential", **params),
        "mcf-logistic": MCFClassifier("logistic", **params),
    }


def parameters(model: Any) -> np.ndarray:
    """Return weights and offsets as one matrix, a row per column of the problem."""
    return np.hstack([model.coef_, model.intercept_[:, None]])


def relative_difference(got: Any, wanted: Any) -> float:
    """Return the largest difference of two arrays (or models), relative to the largest value of the second."""
    got, wanted = (a if isinstance(a, np.ndarray) else parameters(a) for a in (got, wanted))
    assert got.shape == wanted.shape
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def fitted_state(model: Any) -> dict[str, Any]:
    """Return a copy of all attributes of an estimator, for a later comparison."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in vars(model).items()}


def assert_same_state(model: Any, state: dict[str, Any]) -> None:
    """Check that an estimator has exactly these attributes, bit for bit."""
    assert vars(model).keys() == state.keys()
    for name, value in state.items():
        now = vars(model)[name]
        if isinstance(value, np.ndarray):
            assert now.dtype == value.dtype
            np.testing.assert_array_equal(now, value, err_msg=name)
        else:
            assert now is value or now == value, name


def assert_bitwise_equal(one: Any, other: Any) -> None:
    """Check that two fitted models have the same coefficients to the last bit."""
    assert one.coef_.dtype == other.coef_.dtype
    assert one.coef_.tobytes() == other.coef_.tobytes()
    assert one.intercept_.tobytes() == other.intercept_.tobytes()
