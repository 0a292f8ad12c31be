"""Random problems for `optima`: classifications and regressions, their data, weights, noises and parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin import (
    DropoutNoise,
    DropoutRidge,
    DropoutSVR,
    GaussianNoise,
    LaplaceNoise,
    NoisyLinearClassifier,
    NoisyLinearRegressor,
    PoissonNoise,
)
from dropmargin.losses import Huber

from .multinomial import MultinomialProblem
from .reference import MGF_LOSSES, MOMENT_LOSSES, REGRESSION_LOSSES, BinaryProblem

_NOISES = {"dropout": DropoutNoise, "gaussian": GaussianNoise, "laplace": LaplaceNoise, "poisson": PoissonNoise}
#: Names and shares of the shapes that are drawn: rows and features, from and to.
_SHAPES = {
    "small": (0.62, (8, 100), (1, 20)),
    "square": (0.16, (60, 300), (20, 60)),
    "wide": (0.12, (20, 60), (60, 120)),
    "large": (0.06, (300, 800), (30, 80)),
    "diagonal": (0.02, (210, 260), (270, 320)),
    "tall": (0.02, (10_000, 12_000), (2, 6)),
}


@dataclass(frozen=True)
class Case:
    """A drawn problem: the data, and what the estimator is to do with them."""

    X: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None
    loss: str
    noise: tuple[Any, ...]
    C: float
    l1_ratio: float
    tol: float
    fit_intercept: bool
    multi_class: str
    layout: str
    warm: str | None
    described: str = ""
    groups: np.ndarray | None = None
    parameter: float = 1.0

    @property
    def is_regression(self) -> bool:
        return self.multi_class == "regression"

    @property
    def has_missing(self) -> bool:
        return bool(np.isnan(self.X).any())

    def estimator(self) -> Any:
        given = {
            "noise": None if self.noise[0] == "none" else self.make_noise(*self.noise[1:2]),
            "C": self.C,
            "l1_ratio": self.l1_ratio,
            "tol": self.tol,
            "fit_intercept": self.fit_intercept,
            "warm_start": self.warm is not None,
            "missing": "rescale" if self.has_missing else "error",
            "max_iter": 3000,
        }
        if not self.is_regression:
            _, is_gaussian, kind = self.loss.rpartition("gaussian-")
            given |= {"approximation": "gaussian" if is_gaussian else "bound", "multi_class": self.multi_class}
            return NoisyLinearClassifier(kind, **given)
        if self.loss == "quadratic":
            return DropoutRidge(**given)
        if self.loss == "epsilon-insensitive":
            return DropoutSVR(epsilon=self.parameter, **given)
        return NoisyLinearRegressor(Huber(self.parameter), **given)

    def make_noise(self, *level: Any) -> Any:
        """Return the noise with a rate or scale."""
        if self.noise[0] != "dropout":
            return _NOISES[self.noise[0]](*level)
        return DropoutNoise(*level, reference=self.noise[2], groups=self.groups)

    def rows(self) -> Any:
        return sparse.csr_array(self.X) if self.layout == "sparse" else self.X

    def problems(self, classes: np.ndarray | None) -> list[BinaryProblem]:
        """Return the binary problem of each row of ``coef_``, the multinomial problem of all, or the regression."""
        weight = self.C * (np.ones(len(self.y)) if self.sample_weight is None else self.sample_weight)
        is_multinomial = self.multi_class == "multinomial" and classes is not None and len(classes) > 2
        X, noise, is_missing = self._filled(weight)
        out = []
        for used, y in self._targets(classes, is_multinomial):
            used &= weight > 0.0
            kind = MultinomialProblem if is_multinomial else BinaryProblem
            penalty = self.l1_ratio, 1.0 - self.l1_ratio
            others = self.groups, is_missing[used], self.parameter
            out.append(kind(self.loss, noise, X[used], y[used], weight[used], *penalty, self.fit_intercept, *others))
        return out

    def _filled(self, weight: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...], np.ndarray]:
        """Return the rows with the reference for missing entries, the noise with the mean for its name, and which."""
        noise, is_missing = self.noise, np.isnan(self.X)
        if noise[0] == "dropout" and isinstance(noise[2], str) and noise[2] == "mean":
            # the weighted mean of the observed entries of all rows
            observed = weight @ ~is_missing
            sums = weight @ np.where(is_missing, 0.0, self.X)
            noise = (*noise[:2], np.divide(sums, observed, out=np.zeros(len(sums)), where=observed > 0.0))
        value = noise[2] if noise[0] == "dropout" and not isinstance(noise[2], str) else 0.0
        return np.where(is_missing, value, self.X), noise, is_missing

    def _targets(self, classes: np.ndarray | None, is_multinomial: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield for each problem which rows take part, and the targets of all rows."""
        every = np.ones(len(self.y), dtype=bool)
        if classes is None:
            yield every, self.y
        elif is_multinomial:
            yield every, np.searchsorted(classes, self.y)
        elif self.multi_class == "ovo" and len(classes) > 2:
            for a, b in combinations(classes, 2):
                yield (self.y == a) | (self.y == b), np.where(self.y == b, 1.0, -1.0)
        else:
            for k in classes if len(classes) > 2 else classes[1:]:
                yield every.copy(), np.where(self.y == k, 1.0, -1.0)


def draw(seed: int, index: int, multinomial: bool = False) -> Case:
    """Return problem ``index`` of the sequence of this seed; ``multinomial`` with one softmax over all classes."""
    rng = np.random.default_rng([seed, index])
    names = list(_SHAPES)
    shape = names[int(rng.choice(len(names), p=[share for share, *_ in _SHAPES.values()]))]
    _, rows, features = _SHAPES[shape]
    n, d = (int(rng.integers(low, high + 1)) for low, high in (rows, features))
    loss, multi_class, n_classes = _draw_task(rng, 2 if shape == "tall" else int(rng.choice([2, 2, 2, 3, 5])), d)
    if multinomial:
        n_classes, loss = max(3, n_classes), "mcf-logistic" if loss == "mcf-logistic" else "logistic"
        multi_class = "multinomial"
    noise, groups = _draw_noise(rng, d)
    layout = str(rng.choice(["dense", "sparse"]))
    X, kind = _draw_features(rng, n, d, noise[0] == "poisson", loss in MGF_LOSSES, layout == "sparse")
    if noise[0] == "dropout":
        near = X.mean(axis=0) + rng.normal(size=d) * X.std(axis=0)
        noise = (*noise, ("zero", "mean", near)[int(rng.integers(3))])
    y = _draw_numbers(rng, X) if multi_class == "regression" else _draw_labels(rng, X, n_classes)
    weight = _draw_weights(rng, y)
    if rng.uniform() < 0.2 and "shifted by 1e+08" not in kind:
        X, kind = _delete(rng, X, noise, layout), f"{kind} with missing values"
    l1_ratio = float(rng.choice([0.0, 0.0, 1.0, rng.uniform(0.05, 0.95)]))
    C = float(10.0 ** rng.uniform(-3.0, 2.0 if loss in MGF_LOSSES else 4.0))
    tol = float(rng.choice([1e-2, 1e-3, 1e-4, 1e-4, 1e-6, 1e-8]))
    if "1e-5 to 1e5" in kind:  # features over ten decades: rounding leaves about six digits of the objective
        tol = max(tol, 1e-6)
    case = Case(
        X, y, weight, loss, noise, C, l1_ratio, tol,
        fit_intercept=bool(rng.uniform() < 0.85),
        multi_class=multi_class,
        layout=layout,
        warm=str(rng.choice(["C", "noise", "same"])) if rng.uniform() < 0.2 else None,
        groups=groups,
        parameter=float(rng.choice([0.0, 0.01, 0.1, 1.0])) if loss == "epsilon-insensitive" else 1.35,
    )  # fmt: skip
    task = f"{n_classes} classes ({multi_class})" if multi_class != "regression" else _describe_numbers(y)
    weights = "none" if weight is None else f"{weight[weight > 0].min():.2g} to {weight.max():.2g}"
    described = (
        f"{n} x {d} {kind}, {layout}, {task}, loss={loss}({case.parameter:g}), noise={_short(noise, groups)}, "
        f"C={C:.3g}, l1_ratio={l1_ratio:.2g}, tol={tol:g}, fit_intercept={case.fit_intercept}, weights {weights}, "
        f"warm={case.warm}"
    )
    return replace(case, described=described)


def _draw_task(rng: np.random.Generator, n_classes: int, d: int) -> tuple[str, str, int]:
    """Return loss, ``multi_class`` ("regression" for a regression), and the number of classes."""
    loss = str(rng.choice(["hinge", "hinge", "logistic", "quadratic", *MOMENT_LOSSES[3:], *MGF_LOSSES]))
    if rng.uniform() < 0.25:
        return str(rng.choice(REGRESSION_LOSSES)), "regression", 0
    choices = ["ovr", "ovo"]
    if loss in ("logistic", "mcf-logistic") and n_classes * d <= 200:  # the reference has one Hessian of all classes
        choices.append("multinomial")
    return loss, str(rng.choice(choices)), n_classes


def _draw_noise(rng: np.random.Generator, d: int) -> tuple[tuple[Any, ...], np.ndarray | None]:
    """Return the noise, without the reference of dropout, and groups of features, or ``None``."""
    name = str(rng.choice(["none", "dropout", "dropout", "dropout", "gaussian", "laplace", "poisson"]))
    if name in ("none", "poisson"):
        return (name,), None
    has_many = rng.uniform() < 0.15  # levels
    if name != "dropout":
        scale = float(10.0 ** rng.uniform(-6.0, 0.3))
        return (name, scale * rng.uniform(0.0, 1.0, d) if has_many else scale), None
    rate = float(rng.choice([1e-6, 1e-3, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99]))
    if d == 1 or rng.uniform() < 0.6:
        return (name, rng.uniform(0.0, 0.95, d) if has_many else rate), None
    groups = np.unique(rng.integers(0, rng.integers(1, d), d), return_inverse=True)[1]
    return (name, rng.uniform(0.0, 0.95, groups.max() + 1)[groups] if has_many else rate), groups


def _delete(rng: np.random.Generator, X: np.ndarray, noise: tuple[Any, ...], layout: str) -> np.ndarray:
    """Return a copy with NaN, where the package accepts it: additive noise on sparse rows corrupts all zeros."""
    if layout == "sparse" and noise[0] in ("gaussian", "laplace"):
        return X
    is_deleted = rng.uniform(size=X.shape) < rng.choice([0.02, 0.1, 0.4])
    return np.where(is_deleted, np.nan, X)


def _draw_features(
    rng: np.random.Generator, n: int, d: int, is_count: bool, through_mgf: bool, is_sparse: bool
) -> tuple[np.ndarray, str]:
    kind = "counts" if is_count else str(rng.choice(["normal", "normal", "correlated", "binary", "counts"]))
    if kind == "normal":
        X = rng.normal(size=(n, d))
    elif kind == "correlated":
        X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) + 0.1 * rng.normal(size=(n, d))
    elif kind == "binary":
        X = (rng.uniform(size=(n, d)) < rng.uniform(0.05, 0.9, d)).astype(float)
    else:
        X = rng.poisson(rng.uniform(0.2, 3.0, d), (n, d)).astype(float)
    if not is_count and rng.uniform() < 0.3:
        width = 5.0 if rng.uniform() < 0.2 else 1.5
        X = X * 10.0 ** rng.uniform(-width, width, d)
        kind += f" scaled by 1e-{width:g} to 1e{width:g}"
    if rng.uniform() < 0.35:
        # Far from zero, a loss through the log-MGF of dropout or Poisson noise has no small weights to offer.
        largest = 1.0 if through_mgf else 3.0
        # A sparse X is not centred: numbers as far from zero as 1e8 are for dense rows.
        far = rng.uniform() < 0.06 and not (through_mgf or is_count or is_sparse)
        shift = 1e8 if far else 10.0 ** rng.uniform(0.0, largest)
        X = X + (shift if rng.uniform() < 0.6 else shift * rng.uniform(0.0 if is_count else -1.0, 1.0, d))
        kind += f" shifted by {shift:.2g}"
    return X, kind


def _draw_numbers(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """Return targets of a regression: numbers that depend on the features, or only -1 and +1."""
    scaled = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-300)
    y = scaled @ rng.normal(size=X.shape[1])
    y = y / max(float(y.std()), 1e-300) + rng.choice([0.01, 0.3, 3.0]) * rng.standard_t(3.0, size=len(y))
    if rng.uniform() < 0.3:
        return np.where(y > 0.0, 1.0, -1.0)
    return rng.choice([0.0, 0.0, 100.0]) + 10.0 ** rng.uniform(-1.0, 2.0) * y


def _describe_numbers(y: np.ndarray) -> str:
    return "regression of -1 and +1" if np.all(np.abs(y) == 1.0) else f"regression of {y.min():.2g} to {y.max():.2g}"


def _draw_labels(rng: np.random.Generator, X: np.ndarray, n_classes: int) -> np.ndarray:
    """Return labels that depend on the features, separable or not, balanced or not; every class is there."""
    n, d = X.shape
    scaled = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-300)
    scores = scaled @ rng.normal(size=(d, n_classes))
    scores /= max(float(scores.std()), 1e-300)
    scores += rng.choice([0.0, 0.3, 1.0, 3.0]) * rng.normal(size=scores.shape)
    scores += rng.choice([0.0, 0.0, 1.5]) * rng.normal(size=n_classes)
    y = scores.argmax(axis=1)
    y[rng.permutation(n)[:n_classes]] = np.arange(n_classes)
    return y


def _draw_weights(rng: np.random.Generator, y: np.ndarray) -> np.ndarray | None:
    kind = rng.choice(["none", "decades", "zeros", "classes"], p=[0.55, 0.2, 0.1, 0.15])
    if kind == "none":
        return None
    weight, is_class = 10.0 ** rng.uniform(-1.0, 1.0, len(y)), y.dtype.kind == "i"
    if kind == "zeros":
        weight[(rng.uniform(size=len(y)) < 0.3)] = 0.0
        weight[[int(np.argmax(y == k)) for k in np.unique(y)] if is_class else 0] = 1.0  # no class without weight
    elif kind == "classes" and is_class:
        weight = (10.0 ** rng.uniform(-2.0, 0.0, y.max() + 1))[y]
    return weight


def _short(noise: tuple[Any, ...], groups: np.ndarray | None) -> str:
    name, *parameters = noise
    shown = [p if isinstance(p, str) else f"{p:.3g}" if np.ndim(p) == 0 else "array" for p in parameters]
    shown += [] if groups is None else [f"{groups.max() + 1} groups"]
    return f"{name}({', '.join(shown)})" if shown else name
