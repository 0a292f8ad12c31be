"""Random searches over noise and ``C``, for `selection`: data, grid, folds and parameters, all drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.model_selection import (
    KFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    check_cv,
)

from dropmargin import (
    DropoutLogisticRegression,
    DropoutLogisticRegressionCV,
    DropoutNoise,
    DropoutRidge,
    DropoutRidgeCV,
    DropoutSVC,
    DropoutSVCCV,
    DropoutSVR,
    DropoutSVRCV,
    GaussianNoise,
    LaplaceNoise,
    NoisyLinearClassifier,
    NoisyLinearClassifierCV,
    PoissonNoise,
)
from dropmargin.noise import as_noise

#: Per loss: the search, the plain model, their parameters, and how often it is drawn.
_MODELS: dict[str, tuple[Any, Any, dict[str, Any], float]] = {
    "hinge": (DropoutSVCCV, DropoutSVC, {}, 0.28),
    "logistic": (DropoutLogisticRegressionCV, DropoutLogisticRegression, {}, 0.26),
    "gaussian-hinge": (DropoutSVCCV, DropoutSVC, {"approximation": "gaussian"}, 0.06),
    "gaussian-logistic": (DropoutLogisticRegressionCV, DropoutLogisticRegression, {"approximation": "gaussian"}, 0.06),
    "quadratic": (NoisyLinearClassifierCV, NoisyLinearClassifier, {"loss": "quadratic"}, 0.05),
    "exponential": (NoisyLinearClassifierCV, NoisyLinearClassifier, {"loss": "exponential"}, 0.04),
    "mcf-logistic": (NoisyLinearClassifierCV, NoisyLinearClassifier, {"loss": "mcf-logistic"}, 0.07),
    "ridge": (DropoutRidgeCV, DropoutRidge, {}, 0.09),
    "svr": (DropoutSVRCV, DropoutSVR, {"epsilon": 0.1}, 0.09),
}
_LOG_ODDS = ("logistic", "gaussian-logistic", "mcf-logistic")
_MGF = ("exponential", "mcf-logistic")
#: How often each kind of noises is drawn; "counts" is the default grid.
_NOISES = {"rates": 0.26, "many": 0.14, "dropout": 0.2, "groups": 0.14, "gaussian": 0.1, "poisson": 0.06, "mixed": 0.1}


@dataclass(frozen=True)
class Case:
    """A drawn search: data, grid, folds and parameters."""

    X: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None
    loss: str
    layout: str
    noises: Any
    Cs: Any
    cv: Any
    scoring: str | None
    target_noise: Any
    rule: str
    prune: bool
    parameters: dict[str, Any] = field(default_factory=dict)
    described: str = ""

    @property
    def is_regression(self) -> bool:
        return self.loss in ("ridge", "svr")

    @property
    def multi_class(self) -> str:
        return self.parameters.get("multi_class", "ovr")

    @property
    def missing(self) -> str:
        return self.parameters["missing"]

    @property
    def l1_ratio(self) -> float:
        return self.parameters["l1_ratio"]

    @property
    def epsilon(self) -> float:
        return self.parameters.get("epsilon", 1.0)

    @property
    def tol(self) -> float:
        return self.parameters["tol"]

    @property
    def deletes(self) -> bool:
        """Whether held-out rows are scored with deleted features."""
        return self.missing != "error" and isinstance(as_noise(self.target_noise), DropoutNoise)

    @property
    def target_metric(self) -> str:
        """The error of a regression under a target noise."""
        default = "absolute" if self.loss == "svr" else "squared"
        return {"neg_mean_squared_error": "squared", "neg_mean_absolute_error": "absolute"}.get(self.scoring, default)

    def search(self) -> Any:
        return _MODELS[self.loss][0](
            noises=self.noises,
            Cs=self.Cs,
            cv=self.cv,
            scoring=self.scoring,
            target_noise=self.target_noise,
            rule=self.rule,
            prune=self.prune,
            verbose=0,
            **self.parameters,
        )

    def plain(self, noise: Any, C: float, tol: float) -> Any:
        """Return the model of one grid point, not fitted."""
        return _MODELS[self.loss][1](noise=noise, C=C, **{**self.parameters, "tol": tol})

    def rows(self, index: Any = slice(None)) -> Any:
        """Return some rows in the drawn layout."""
        return self.in_layout(self.X[index])

    def in_layout(self, X: np.ndarray) -> Any:
        return sparse.csr_array(X) if self.layout == "sparse" else X

    def weight(self, index: Any = slice(None)) -> np.ndarray | None:
        return None if self.sample_weight is None else self.sample_weight[index]

    def folds(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return training and test rows of each fold."""
        return list(check_cv(self.cv, self.y, classifier=not self.is_regression).split(self.X, self.y))


def draw(seed: int, index: int) -> Case:
    """Return search ``index`` of the sequence of this seed."""
    rng = np.random.default_rng([seed, index])
    losses = list(_MODELS)
    loss = str(rng.choice(losses, p=[share for *_, share in _MODELS.values()]))
    is_regression = loss in ("ridge", "svr")
    n_folds = int(rng.choice([2, 3, 3, 5]))
    n_classes = int(rng.choice([2, 2, 2, 3, 4, 5]))
    n = int(rng.integers(max(20, 4 * n_folds, 8 * n_classes), 151))
    d = int(rng.integers(2, 13))
    multi_class = str(rng.choice(["ovr", "ovr", "ovo"]))
    if loss in ("logistic", "mcf-logistic") and rng.uniform() < 0.45:
        multi_class = "multinomial"
    layout = str(rng.choice(["dense", "dense", "sparse"]))
    kind = str(rng.choice(list(_NOISES), p=list(_NOISES.values())))
    missing, share = str(rng.choice(["error", "error", "rescale", "conditional"])), 0.0
    if missing != "error" and rng.uniform() < 0.6:
        share = float(rng.choice([0.03, 0.1, 0.3]))
    X, shape = _draw_features(rng, n, d, kind == "poisson", layout == "sparse")
    y = _draw_targets(rng, X) if is_regression else _draw_labels(rng, X, n_classes, n_folds)
    if share:
        X[rng.uniform(size=X.shape) < share] = np.nan
    noises = _draw_noises(rng, kind, X, missing == "rescale" and share > 0.0, layout == "sparse", loss in _MGF)
    Cs = _draw_cs(rng, X, loss)
    is_default = rng.uniform() < 0.08 and n <= 100 and kind != "poisson"
    if is_default:
        noises, Cs, n_folds = 10, 13, min(n_folds, 3)
    weight = _draw_weights(rng, y, is_regression)
    target = _draw_target(rng, noises, X, layout == "sparse") if rng.uniform() < 0.35 else None
    if target is not None and multi_class == "ovo":
        multi_class = "ovr"
    parameters: dict[str, Any] = {
        **_MODELS[loss][2],
        "l1_ratio": float(rng.choice([0.0, 0.0, 0.0, 0.0, 1.0, 0.3])),
        "tol": float(rng.choice([1e-4, 1e-4, 1e-6, 1e-8])),
        "fit_intercept": bool(rng.uniform() < 0.9),
        "missing": missing,
    }
    if not is_regression:
        parameters["multi_class"] = multi_class
        parameters["class_weight"] = "balanced" if rng.uniform() < 0.15 else None
    scoring = _draw_scoring(rng, loss, n_classes, multi_class, target is not None)
    case = Case(
        X, y, weight, loss, layout, noises, Cs,
        cv=_draw_cv(rng, n_folds, is_regression, y),
        scoring=scoring,
        target_noise=target,
        rule="one-se" if rng.uniform() < 0.2 else "best",
        prune=bool(rng.uniform() < 0.6),
        parameters=parameters,
    )  # fmt: skip
    classes = "" if is_regression else f"{np.bincount(y)} {multi_class}, "
    described = (
        f"{n} x {d} {shape}, {layout}, {classes}loss={loss}, noises={noises}, Cs={Cs}, "
        f"cv={'a list' if isinstance(case.cv, list) else case.cv}, "
        f"scoring={scoring}, target_noise={target}, rule={case.rule}, prune={case.prune}, missing={missing} "
        f"({share:.0%}), weights {'none' if weight is None else 'given'}, "
        f"{ {name: parameters[name] for name in ('l1_ratio', 'tol', 'fit_intercept')} }"
    )
    return Case(**{**vars(case), "described": " ".join(described.split())})


def _draw_features(rng: np.random.Generator, n: int, d: int, is_count: bool, is_sparse: bool) -> tuple[np.ndarray, str]:
    kind = "counts" if is_count else str(rng.choice(["normal", "normal", "correlated", "binary", "counts"]))
    if kind == "normal":
        X = rng.normal(size=(n, d))
    elif kind == "correlated":
        X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + 0.3 * rng.normal(size=(n, d))
    elif kind == "binary":
        X = (rng.uniform(size=(n, d)) < rng.uniform(0.1, 0.9, d)).astype(float)
    else:
        X = rng.poisson(rng.uniform(0.3, 3.0, d), (n, d)).astype(float)
    if is_sparse and not is_count:
        X *= rng.uniform(size=X.shape) < 0.6
    if not is_count and rng.uniform() < 0.25:
        X, kind = X * 10.0 ** rng.uniform(-1.0, 1.0, d), f"{kind} scaled"
    if rng.uniform() < 0.25:
        X, kind = X + rng.uniform(0.0, 3.0, d), f"{kind} shifted"
    return X, kind


def _standardised(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)


def _draw_targets(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    signal = _standardised(X) @ rng.normal(size=X.shape[1])
    return signal + rng.choice([0.1, 1.0, 5.0]) * rng.normal(size=len(X)) + rng.choice([0.0, 10.0])


def _draw_labels(rng: np.random.Generator, X: np.ndarray, n_classes: int, n_folds: int) -> np.ndarray:
    """Return labels that depend on the features, balanced or not; every class has rows for every fold."""
    scores = _standardised(X) @ rng.normal(size=(X.shape[1], n_classes))
    scores /= max(float(scores.std()), 1e-12)
    scores += rng.choice([0.0, 0.3, 1.0, 3.0]) * rng.normal(size=scores.shape)
    scores += rng.choice([0.0, 0.0, 1.5]) * rng.normal(size=n_classes)
    y = scores.argmax(axis=1)
    least = n_folds + 2
    y[rng.permutation(len(y))[: least * n_classes]] = np.repeat(np.arange(n_classes), least)[: len(y)]
    return y


def _draw_weights(rng: np.random.Generator, y: np.ndarray, is_regression: bool) -> np.ndarray | None:
    kind = rng.choice(["none", "decade", "zeros"], p=[0.65, 0.25, 0.1])
    if kind == "none":
        return None
    weight = 10.0 ** rng.uniform(-0.5, 0.5, len(y))
    if kind == "zeros":  # two rows of each class that has many
        for k in [None] if is_regression else np.unique(y):
            members = np.arange(len(y)) if k is None else np.flatnonzero(y == k)
            if len(members) >= 15:
                weight[rng.choice(members, 2, replace=False)] = 0.0
    return weight


def _draw_noises(
    rng: np.random.Generator, kind: str, X: np.ndarray, fills: bool, is_sparse: bool, through_mgf: bool
) -> list[Any]:
    """Return the noises of a grid; ``fills``: missing entries are zeros, which excludes some noises."""
    d, first = X.shape[1], [None] if rng.uniform() < 0.5 else []
    rates = sorted(rng.choice([0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9], size=int(rng.integers(1, 4)), replace=False))
    rates = [float(rate) for rate in rates]
    scale = float(np.nanstd(X))
    if kind == "gaussian" and not (fills and is_sparse):
        made = LaplaceNoise if rng.uniform() < 0.25 else GaussianNoise
        return [*first, *(made(scale=round(float(s), 4)) for s in scale * np.array([0.1, 0.5, 1.5])[: len(rates)])]
    if kind == "poisson":
        return [*first, PoissonNoise()]
    if kind == "many":
        return [*first, *np.round(np.linspace(0.1, 0.9, int(rng.integers(6, 10))), 3).tolist()]
    references: list[Any] = ["zero", "mean", np.round(np.nanmean(X, axis=0) + 0.3, 3)]
    reference = references[int(rng.integers(len(references)))]
    if kind == "dropout":
        if rng.uniform() < 0.2:
            own = [np.round(rate * rng.uniform(0.2, 1.0, d), 3) for rate in rates]
            return [*first, *(DropoutNoise(rate, reference=reference) for rate in own)]
        return [*first, *(DropoutNoise(rate, reference=reference) for rate in rates)]
    if kind == "groups" and d > 2:
        groups = rng.integers(0, max(2, d // 2), d)
        groups = np.unique(groups, return_inverse=True)[1]
        return [*first, *(DropoutNoise(rate, reference=reference, groups=groups) for rate in rates)]
    if kind == "mixed" and not (fills and is_sparse):
        return [*first, *rates, GaussianNoise(scale=round(0.5 * scale, 4)), DropoutNoise(0.4, reference="zero")]
    return [*first, *rates]


def _draw_cs(rng: np.random.Generator, X: np.ndarray, loss: str) -> Any:
    if rng.uniform() < 0.15:
        return int(rng.integers(2, 8))
    centre = np.log10(1.0 / max(float(np.nanvar(X, axis=0).sum()), 1e-12))
    highest = 2.0 if loss in _MGF else 3.0
    count = int(rng.choice([1, 2, 3, 4, 7]))
    exponents = centre + np.sort(rng.uniform(-2.0, highest, count))
    return [float(f"{C:.3g}") for C in 10.0**exponents]


def _draw_target(rng: np.random.Generator, noises: Any, X: np.ndarray, is_sparse: bool) -> Any:
    """Return a target noise: a rate, or a noise of a kind that is in the grid."""
    rate = float(rng.choice([0.1, 0.3, 0.5, 0.8]))
    kinds = [noise for noise in ([] if isinstance(noises, int) else noises) if hasattr(noise, "get_params")]
    if not kinds or rng.uniform() < 0.5:
        return rate
    return kinds[int(rng.integers(len(kinds)))]


def _draw_scoring(rng: np.random.Generator, loss: str, n_classes: int, multi_class: str, is_target: bool) -> str | None:
    if rng.uniform() < 0.6:
        return None
    if loss in ("ridge", "svr"):
        names = ["neg_mean_squared_error", "neg_mean_absolute_error", *([] if is_target else ["r2"])]
        return str(rng.choice(names))
    names = ["accuracy", "balanced_accuracy", "f1_macro"]
    if n_classes == 2:
        names.append("roc_auc")
    if loss in _LOG_ODDS and multi_class != "ovo":
        names.append("neg_log_loss")
    return None if is_target else str(rng.choice(names))


def _draw_cv(rng: np.random.Generator, n_folds: int, is_regression: bool, y: np.ndarray) -> Any:
    kind, seed = rng.choice(["int", "splitter", "shuffle", "list"], p=[0.5, 0.2, 0.2, 0.1]), int(rng.integers(1000))
    if kind == "int":
        return n_folds
    if kind == "shuffle":
        return (ShuffleSplit if is_regression else StratifiedShuffleSplit)(n_folds, test_size=0.3, random_state=seed)
    if is_regression or kind == "list":
        splitter = (KFold if is_regression else StratifiedKFold)(n_folds, shuffle=True, random_state=seed)
        return list(splitter.split(y, y)) if kind == "list" else splitter
    if n_folds == 2:
        return RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=seed)
    return StratifiedKFold(n_folds, shuffle=True, random_state=seed)
