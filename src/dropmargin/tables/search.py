"""The search of a table model: basis, scaling, noise and ``C``.

Candidates are compared on held-out rows, as they are and with columns lost at the target rate. The search sees at most
`MAX_SEARCH_ROWS` rows.

Candidates are models of least squares, in closed form also with dropout of columns: of the targets, or of the classes
as 0 and 1. One Gaussian distribution for each scaling fills what is missing, for all bases: the features of the Fourier
basis contain those of the others. Tables with text or with many columns have no Gaussian of all features: their
candidates are a few fits of the model itself.

A Fourier basis is fitted in two steps: least squares in closed form, on rows and on copies whose cells are deleted; and
then the model of the few scores that these give, which are those of rows that least squares has not seen.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import solve
from sklearn.base import clone, is_classifier
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit, check_cv
from sklearn.preprocessing import LabelBinarizer

from dropmargin.progress import Progress
from dropmargin.tables.fourier import FourierFeatures, scale_gamma
from dropmargin.tables.groups import GroupedMatrix
from dropmargin.typing import Array

#: The largest number of rows of a search, and of rows and features of a Fourier basis.
MAX_SEARCH_ROWS, MAX_FOURIER_ROWS, MAX_COMPONENTS = 1500, 20_000, 1000
#: Fourier features of a search, and the number of factors of the Gaussian distribution of the rows, also of a search.
N_SEARCHED, RANK, SEARCH_RANK = 200, 40, 20
#: Copies of a training row with deleted cells, beside the complete one.
N_COPIES = 2
# From so many rows on, one part is held out in place of three folds.
_MIN_HELD_OUT = 150
_NOISES, _CS, _RIDGE_CS, _GAMMAS, _TOL = (0.03, 0.2), (0.3, 3.0, 30.0), (0.3, 3.0, 30.0), (0.4, 2.5, 6.0), 1e-3
# More features than this have no Fourier basis, and no spline basis.
_MAX_FOURIER_FEATURES, _MAX_SPLINE_FEATURES = 150, 300
# The share of the squared error that a basis must have less than a simpler one.
_GAIN = 0.003
_N_FOLDS = 3
# Factors of ``C`` of the search that the fit of a Fourier basis tries: more rows and features need less penalty.
_FACTORS = (1.0, 5.0, 25.0)


@dataclass(frozen=True)
class Setting:
    """What a search chooses: a basis, its scaling, and the parameters of the model."""

    basis: str
    scaling: str = "standard"
    noise: Any = 0.1
    C: float = 1.0
    gamma: float = 1.0  # times that of gamma="scale"
    score: float = float("nan")


@dataclass
class Task:
    """The rows of a fit, and what is fixed by the user.

    ``encode(basis, scaling)`` returns the matrix of all rows in a basis. ``plain`` is the model. ``noise`` and ``C``
    are the given values, ``"auto"`` and None if they are chosen.
    """

    encode: Any
    y: Array
    sample_weight: Array | None
    plain: Any
    noise: Any
    C: float | None
    target_rate: float
    cv: Any
    rng: np.random.Generator
    can_scale: bool = True
    encoded: dict[tuple[str, str], GroupedMatrix] = field(default_factory=dict)

    def matrix(self, basis: str, scaling: str) -> GroupedMatrix:
        """Return the encoded rows, which are kept for the next request."""
        key = encoding(basis, scaling)
        if key not in self.encoded:
            self.encoded[key] = self.encode(*key)
        return self.encoded[key]

    def weights(self, rows: Array) -> Array:
        """Return the weights of some rows."""
        return np.ones(len(rows)) if self.sample_weight is None else self.sample_weight[rows]

    @property
    def targets(self) -> Array:
        """The classes as columns of 0 and 1 (one column for two classes), or the targets in units of their deviation.

        The unit is that of ``C`` of a regression, too.
        """
        if is_classifier(self.plain):
            return np.asarray(LabelBinarizer().fit_transform(self.y), dtype=np.float64)
        return self.y[:, None] / self.unit

    @property
    def unit(self) -> float:
        """The deviation of the targets of a regression, 1 for classes."""
        return 1.0 if is_classifier(self.plain) else max(float(np.std(self.y)), 1e-12)


def encoding(basis: str, scaling: str) -> tuple[str, str]:
    """Return basis and scaling of an encoder; a spline has no scaling."""
    return basis, "standard" if basis == "spline" else scaling


def possible_bases(matrix: GroupedMatrix, n_splines: int) -> tuple[str, ...]:
    """Return the bases that a search tries, for the linear basis and the number of columns that can have splines."""
    bases = ["linear"] + ["spline"] * (0 < n_splines <= _MAX_SPLINE_FEATURES)
    return (*bases, "fourier") if _is_small(matrix) else tuple(bases)


def _is_small(matrix: GroupedMatrix) -> bool:
    return not matrix.is_sparse and matrix.n_features <= _MAX_FOURIER_FEATURES


def choose(task: Task, bases: tuple[str, ...], verbose: int) -> tuple[Setting, dict[str, float]]:
    """Return the best setting, and the score of each basis."""
    if len(bases) == 1 and task.noise != "auto" and task.C is not None:
        return Setting(bases[0], noise=task.noise, C=float(task.C)), {}
    rows, folds = _folds(task)
    with Progress(3, "choosing the model", verbose=verbose) as progress:
        if "fourier" in bases or _is_small(task.matrix("linear", "standard")):
            best, tried = _choose_basis(task, bases, rows, folds, progress)
        else:
            tried = [_choose_additive(task, Setting(basis), rows, folds) for basis in bases]
            best = max(tried, key=lambda setting: setting.score)
    return best, {setting.basis: setting.score for setting in tried}


def _folds(task: Task) -> tuple[Array, list[tuple[Array, Array]]]:
    """Return the rows of the search, and its folds as indices into these; a given splitter gets all rows."""
    rows, y = np.arange(len(task.y)), task.y
    if not (task.cv is None or isinstance(task.cv, int)):
        splitter = check_cv(task.cv, y, classifier=is_classifier(task.plain))
        return rows, list(splitter.split(np.zeros((len(y), 1)), y))
    if len(rows) > MAX_SEARCH_ROWS:
        rows = np.sort(task.rng.permutation(len(y))[:MAX_SEARCH_ROWS])
    options: dict[str, Any] = {"random_state": int(task.rng.integers(2**31))}
    is_one = task.cv is None and len(rows) >= _MIN_HELD_OUT
    options |= {"n_splits": 1, "test_size": 0.3} if is_one else {"n_splits": task.cv or _N_FOLDS, "shuffle": True}
    if not is_classifier(task.plain):
        options["n_splits"] = min(options["n_splits"], len(rows))
        return rows, list((ShuffleSplit if is_one else KFold)(**options).split(rows))
    _, index, counts = np.unique(y[rows], return_inverse=True, return_counts=True)
    rows = rows[counts[index] > 1]  # a class of one row cannot be held out
    most = int(counts[counts > 1].min()) if (counts > 1).sum() > 1 else 0
    if most < 2:
        raise ValueError(
            "A search needs two rows of two classes at least: pass basis, noise and C, for example "
            "basis='linear', noise=0.1, C=1.0."
        )
    options["n_splits"] = min(options["n_splits"], most)
    return rows, list((StratifiedShuffleSplit if is_one else StratifiedKFold)(**options).split(rows, y[rows]))


# The search by least squares ----------------------------------------------------------------------------


@dataclass
class _Part:
    """A fold in the Fourier basis: the terms of its rows and of copies with deleted cells; and what is held out."""

    features: FourierFeatures
    trained: list[tuple[Array, Array, Array]]
    tested: list[tuple[Array, Array, Array]]
    train: Array
    test: Array


def _parts(task: Task, scaling: str, rows: Array, folds: Any) -> list[_Part]:
    rng, parts = np.random.default_rng(0), []  # the same copies for all scalings
    whole = task.matrix("fourier", scaling)
    for train, test in folds:
        own, other = whole.take(rows[train]), whole.take(rows[test])
        features = fourier_features(own, 1.0, N_SEARCHED, rng, SEARCH_RANK)
        trained = [own.X] + ([] if task.noise is None else [own.deleted(None, rng)])
        tested = [other.X] + ([other.deleted(task.target_rate, rng)] if task.target_rate > 0.0 else [])
        terms = [[features.terms(copy) for copy in copies] for copies in (trained, tested)]
        parts.append(_Part(features, terms[0], terms[1], rows[train], rows[test]))
    return parts


def _choose_basis(
    task: Task, bases: tuple[str, ...], rows: Array, folds: Any, progress: Progress
) -> tuple[Setting, list[Setting]]:
    """Return the best setting, and the best one of each basis; a simpler basis is preferred to a small gain.

    A score is the share of the variance of the targets, or of the classes as 0 and 1, that least squares explain: one
    less the geometric mean of the shares that are left on complete rows and with columns lost.
    """
    found: dict[str, list[Setting]] = {basis: [] for basis in bases}
    chosen: list[_Part] = []
    for scaling in ("standard", "quantile") if task.can_scale else ("standard",):
        parts = _parts(task, scaling, rows, folds)
        for basis in bases:
            if basis != "spline" or scaling == "standard":
                found[basis].append(_explained(task, Setting(basis, scaling), parts))
        fourier = [setting.score for setting in found.get("fourier", [])]
        if fourier and fourier[-1] == max(fourier):
            chosen = parts
        progress.advance()
    if "fourier" in bases:
        best = max(found["fourier"], key=lambda setting: setting.score)
        wider, narrow, narrower = _GAMMAS
        found["fourier"].append(_explained(task, replace(best, gamma=narrow), chosen))
        gamma = narrower if found["fourier"][-1].score > best.score else wider
        found["fourier"].append(_explained(task, replace(best, gamma=gamma), chosen))
    tried = [max(found[basis], key=lambda setting: setting.score) for basis in bases]
    best = tried[0]
    for setting in tried[1:]:
        if 1.0 - setting.score < (1.0 - _GAIN) * (1.0 - best.score):
            best = setting
    progress.advance()
    return best, tried


def _explained(task: Task, setting: Setting, parts: list[_Part]) -> Setting:
    """Return the setting with the best noise and ``C`` of least squares, and its score."""
    is_fourier, targets = setting.basis == "fourier", task.targets
    unit = _unit_of_c(task, setting.basis)
    noises = [task.noise] if is_fourier or task.noise != "auto" else _NOISES
    options = list(itertools.product(noises, _RIDGE_CS if task.C is None else [task.C / unit]))
    losses = np.zeros(len(options))
    matrix = task.matrix("fourier", setting.scaling)
    used = matrix.in_kernel
    if setting.basis == "spline":
        used = ~used | ~np.isin(matrix.numbers, matrix.numbers[~used])
    for part in parts:
        trained, tested = (
            [part.features.combined(*own, setting.gamma) if is_fourier else own[0][:, used] for own in terms]
            for terms in (part.trained if is_fourier else part.trained[:1], part.tested)
        )
        n_copies, wanted = len(trained), targets[part.test]
        weight = np.tile(task.weights(part.train), n_copies)
        moments = _Moments.of(np.vstack(trained), np.vstack([targets[part.train]] * n_copies), weight)
        scale = max(np.square(wanted - targets[part.train].mean(axis=0)).sum(), 1e-300)
        for place, (noise, C) in enumerate(options):
            rates = None if is_fourier else matrix.rates(noise)
            blocks = None if rates is None else (matrix.numbers[used], rates[used])
            coef, intercept = moments.solved(C, blocks)
            errors = [np.square(rows @ coef + intercept - wanted).sum() / scale for rows in tested]
            losses[place] += np.mean(np.log(np.maximum(errors, 1e-12)))
    noise, C = options[int(np.argmin(losses))]
    return replace(setting, noise=noise, C=C * unit, score=float(1.0 - np.exp(losses.min() / len(parts))))


def _unit_of_c(task: Task, basis: str) -> float:
    """Return what ``C`` of the model is for ``C = 1`` of least squares, by the curvature of the losses."""
    if basis == "fourier":
        return 1.0
    if is_classifier(task.plain):
        return 4.0
    return task.unit if hasattr(task.plain, "epsilon") else 0.5


@dataclass(frozen=True)
class _Moments:
    """Weighted sums of products of features and targets, for least squares."""

    total: float
    sums: Array  # of features and targets
    products: Array  # of features with features and targets

    @classmethod
    def of(cls, Z: Array, T: Array, weight: Array) -> _Moments:
        both, n_features = np.hstack([Z, T]), Z.shape[1]
        sums = weight @ both
        both *= np.sqrt(weight)[:, None]
        return cls(float(weight.sum()), sums, (both.T @ both)[:n_features])

    def __add__(self, other: _Moments) -> _Moments:
        return _Moments(self.total + other.total, self.sums + other.sums, self.products + other.products)

    def solved(self, C: float, blocks: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        """Return coefficients and intercepts; ``blocks`` are the groups of the features and their dropout rates."""
        n_features = len(self.products)
        means = self.sums / self.total
        products = self.products - self.sums[:n_features, None] * means
        gram, cross = products[:, :n_features], products[:, n_features:]
        if blocks is not None:
            groups, rates = blocks
            gram = gram * (1.0 + (groups[:, None] == groups) * (rates / (1.0 - rates)))
        coef = solve(gram + np.eye(n_features) / C, cross, assume_a="pos", check_finite=False)
        return coef, means[n_features:] - means[:n_features] @ coef


# Tables with text or many columns -------------------------------------------------------------------------------------


def _choose_additive(task: Task, setting: Setting, rows: Array, folds: Any) -> Setting:
    """Return the setting with the best noise and ``C`` of a linear or a spline basis."""
    matrix = task.matrix(setting.basis, setting.scaling)
    parts = []
    for train, test in folds:
        own, other = matrix.take(rows[train]), matrix.take(rows[test])
        tested = [other.X] + [other.lost(task.target_rate, task.rng)] * (task.target_rate > 0.0)
        parts.append((own.X, tested, rows[train], rows[test]))

    def score(noise: Any, C: float) -> float:
        model = clone(task.plain).set_params(noise=matrix.noise(noise), C=C, tol=_TOL, missing_rank=5)
        found = []
        for trained, tested, train, test in parts:
            model.fit(trained, task.y[train], task.weights(train))
            found += [model.score(X, task.y[test], task.weights(test)) for X in tested]
        return float(np.mean(found))

    noises = list(_NOISES) if task.noise == "auto" else [task.noise]
    Cs = [C * task.unit if hasattr(task.plain, "epsilon") else C for C in _CS] if task.C is None else [task.C]
    scores = {(noises[0], C): score(noises[0], C) for C in Cs} if len(Cs) > 1 else {}
    _, C = max(scores, key=lambda one: scores[one]) if scores else (None, Cs[0])
    scores |= {(noise, C): score(noise, C) for noise in noises if (noise, C) not in scores}
    noise, C = max(scores, key=lambda one: scores[one])
    return replace(setting, noise=noise, C=C, score=scores[noise, C])


# The final fit --------------------------------------------------------------------------------------------------------


def fit_setting(task: Task, setting: Setting) -> tuple[FourierFeatures | None, Any, float, float]:
    """Return the Fourier features of a setting, if it has them, its model, ``C``, and the deviation of residuals."""
    matrix = task.matrix(setting.basis, setting.scaling)
    model = clone(task.plain)
    if setting.basis != "fourier":
        model.set_params(C=setting.C, noise=matrix.noise(setting.noise), missing_rank=matrix.rank(RANK))
        return None, model.fit(matrix.X, task.y, sample_weight=task.sample_weight), setting.C, float("nan")
    rows = np.arange(len(task.y))
    if len(rows) > MAX_FOURIER_ROWS:
        rows = np.sort(task.rng.permutation(len(rows))[:MAX_FOURIER_ROWS])
    matrix, weight, targets = matrix.take(rows), task.weights(rows), task.targets[rows]
    n_components = min(MAX_COMPONENTS, 400 + 40 * targets.shape[1])
    features = fourier_features(matrix, setting.gamma, n_components, task.rng)
    n_copies = 0 if setting.noise is None else N_COPIES
    copies = [features.transform(matrix.X)]
    copies += [features.transform(matrix.deleted(None, task.rng)) for _ in range(n_copies)]
    # The scores of each fold are those of least squares on the others.
    folds = np.empty(len(rows), dtype=int)
    folds[np.lexsort((task.rng.random(len(rows)), task.y[rows]))] = np.arange(len(rows)) % _N_FOLDS
    n_blocks, sums = len(copies), []
    for k in range(_N_FOLDS):
        own = np.flatnonzero(folds == k)
        Z = np.vstack([copy[own] for copy in copies])
        sums.append(_Moments.of(Z, np.tile(targets[own], (n_blocks, 1)), np.tile(weight[own], n_blocks)))
    scores: Any = None
    best, chosen, wanted = np.inf, setting.C, targets * np.sqrt(weight)[:, None]
    for C in [setting.C * factor for factor in (_FACTORS if task.C is None else (1.0,))]:
        held_out = np.empty((n_blocks, len(rows), targets.shape[1]))
        for k in range(_N_FOLDS):
            coef, intercept = _total([one for j, one in enumerate(sums) if j != k]).solved(C)
            for place, Z in enumerate(copies):
                held_out[place, folds == k] = Z[folds == k] @ coef + intercept
        errors = [np.square(one * np.sqrt(weight)[:, None] - wanted).sum() + 1e-300 for one in held_out]
        loss = np.log(errors[0]) + np.log(np.mean(errors))
        if loss < best:
            best, scores, chosen = loss, held_out, C
    features.projection_ = np.vstack(_total(sums).solved(chosen))
    model.set_params(noise=None, missing="error", C=10.0 * task.unit if hasattr(model, "epsilon") else 10.0)
    model.fit(scores.reshape(-1, targets.shape[1]), np.tile(task.y[rows], n_blocks), np.tile(weight, n_blocks))
    if is_classifier(model):
        return features, model, chosen, float("nan")
    residuals = model.predict(scores[0]) - task.y[rows]
    return features, model, chosen, float(np.sqrt(np.average(np.square(residuals), weights=weight)))


def _total(moments: list[_Moments]) -> _Moments:
    return sum(moments[1:], moments[0])


def fourier_features(
    matrix: GroupedMatrix, gamma: float, n_components: int, rng: np.random.Generator, rank: int = RANK
) -> FourierFeatures:
    """Return fitted Fourier features, with ``gamma`` as a multiple of that of the variance of the rows."""
    seed = int(rng.integers(2**31))
    gamma *= scale_gamma(matrix.X[:, matrix.in_kernel])
    features = FourierFeatures(
        gamma, n_components, linear=True, in_kernel=matrix.in_kernel, rank=matrix.rank(rank), random_state=seed
    )
    return features.fit(matrix.X)
