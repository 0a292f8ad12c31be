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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import solve
from sklearn.base import clone, is_classifier
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit, check_cv
from sklearn.preprocessing import LabelBinarizer

from dropmargin.progress import Progress
from dropmargin.tables.fourier import FourierFeatures
from dropmargin.tables.groups import GroupedMatrix
from dropmargin.typing import Array

#: The largest number of rows of a search, and of rows and features of a Fourier basis.
MAX_SEARCH_ROWS, MAX_FOURIER_ROWS, MAX_COMPONENTS = 1500, 20_000, 1600
#: Fourier features of a search, and the number of factors of the Gaussian distribution of the rows, also of a search.
N_SEARCHED, RANK, SEARCH_RANK = 200, 40, 20
#: Copies of a training row with deleted cells, beside the complete one.
N_COPIES = 2
# From so many rows on, one part is held out in place of three folds.
_MIN_HELD_OUT, _N_FOLDS = 150, 3
_NOISES, _CS, _GAMMAS, _TOL = (0.03, 0.2), (0.3, 3.0, 30.0), (0.4, 2.5, 6.0), 1e-3
# More features than this have no Fourier basis, and no spline basis.
_MAX_FOURIER_FEATURES, _MAX_SPLINE_FEATURES = 150, 300
# The share of the squared error that a basis must have less than a simpler one.
_GAIN = 0.003
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


@dataclass(frozen=True)
class Task:
    """The rows of a fit, and what is fixed by the user.

    ``encode(basis, scaling, rows)`` returns the matrix of some rows in a basis. ``plain`` is the model. ``noise`` and
    ``C`` are the given values, ``"auto"`` and None if they are chosen. ``bases`` and ``scalings`` are those to try, by
    least squares if the table ``is_small``.
    """

    encode: Callable[..., GroupedMatrix]
    y: Array
    weight: Array
    plain: Any
    noise: Any
    C: float | None
    target_rate: float
    cv: Any
    rng: np.random.Generator
    bases: tuple[str, ...]
    scalings: tuple[str, ...]
    is_small: bool
    progress: Progress

    @cached_property
    def targets(self) -> Array:
        """The classes as columns of 0 and 1 (one column for two classes), or the targets in units of their deviation.

        The unit is that of ``C`` of a regression, too.
        """
        if is_classifier(self.plain):
            return np.asarray(LabelBinarizer().fit_transform(self.y), dtype=np.float64)
        return self.y[:, None] / self.unit

    @cached_property
    def unit(self) -> float:
        """The deviation of the targets of a regression, 1 for classes."""
        return 1.0 if is_classifier(self.plain) else max(float(np.std(self.y)), 1e-12)


def candidates(basis: str, encoder: Any, n_splines: int) -> tuple[tuple[str, ...], bool]:
    """Return the bases to try, and whether the table is small.

    ``encoder`` is that of the linear basis, and ``n_splines`` the number of columns that can have splines. A table is
    small if one Gaussian of all features fills what is missing.
    """
    is_small = not encoder.is_word_.any() and len(encoder.feature_columns_) <= _MAX_FOURIER_FEATURES
    if basis != "auto":
        return (basis,), is_small or basis == "fourier"
    return ("linear", *["spline"] * (0 < n_splines <= _MAX_SPLINE_FEATURES), *["fourier"] * is_small), is_small


def choose(task: Task) -> tuple[Setting, dict[str, float]]:
    """Return the best setting, and the score of each basis; a simpler basis is preferred to a small gain."""
    if len(task.bases) == 1 and task.noise != "auto" and task.C is not None:
        return Setting(task.bases[0], noise=task.noise, C=float(task.C)), {}
    rows, folds = _folds(task)
    own = replace(task, y=task.y[rows], weight=task.weight[rows], encode=lambda *basis: task.encode(*basis, rows))
    tried = (_by_least_squares if task.is_small else _by_fits)(own, folds)
    best = tried[0]
    for setting in tried[1:]:
        if 1.0 - setting.score < (1.0 - _GAIN) * (1.0 - best.score):
            best = setting
    return best, {setting.basis: setting.score for setting in tried}


def _folds(task: Task) -> tuple[Array, list[tuple[Array, Array]]]:
    """Return the rows of the search, and its folds as indices into these; a given splitter gets all rows."""
    rows, y, is_classes = np.arange(len(task.y)), task.y, is_classifier(task.plain)
    if not (task.cv is None or isinstance(task.cv, int)):
        return rows, list(check_cv(task.cv, y, classifier=is_classes).split(np.zeros((len(y), 1)), y))
    if len(rows) > MAX_SEARCH_ROWS:
        rows = np.sort(task.rng.permutation(len(y))[:MAX_SEARCH_ROWS])
    options: dict[str, Any] = {"random_state": int(task.rng.integers(2**31))}
    is_one = task.cv is None and len(rows) >= _MIN_HELD_OUT
    options |= {"n_splits": 1, "test_size": 0.3} if is_one else {"n_splits": task.cv or _N_FOLDS, "shuffle": True}
    most, splitters = len(rows), (ShuffleSplit, KFold)
    if is_classes:
        _, index, counts = np.unique(y[rows], return_inverse=True, return_counts=True)
        rows = rows[counts[index] > 1]  # a class of one row cannot be held out
        most, splitters = int(counts[counts > 1].min(initial=len(y))), (StratifiedShuffleSplit, StratifiedKFold)
        if (counts > 1).sum() < 2:
            raise ValueError(
                "A search needs two rows of two classes at least: pass basis, noise and C, for example "
                "basis='linear', noise=0.1, C=1.0."
            )
    options["n_splits"] = min(options["n_splits"], most)
    return rows, list(splitters[not is_one](**options).split(rows, y[rows]))


# The search by least squares ----------------------------------------------------------------------------


@dataclass
class _Part:
    """A fold in the Fourier basis: the terms of its rows and of copies with deleted cells; and what is held out."""

    matrix: GroupedMatrix
    features: FourierFeatures
    trained: list[tuple[Array, Array, Array]]
    tested: list[tuple[Array, Array, Array]]
    train: Array
    test: Array


def _parts(task: Task, scaling: str, folds: Any) -> list[_Part]:
    rng, parts = np.random.default_rng(0), []  # the same copies for all scalings
    whole = task.encode("fourier", scaling)
    for train, test in folds:
        own, other = whole.take(train), whole.take(test)
        features = fourier_features(own, 1.0, N_SEARCHED, rng, SEARCH_RANK)
        trained = [own.X] + ([] if task.noise is None else [own.deleted(None, rng)])
        tested = [other.X] + ([other.deleted(task.target_rate, rng)] if task.target_rate > 0.0 else [])
        terms = [[features.terms(copy) for copy in copies] for copies in (trained, tested)]
        parts.append(_Part(own, features, terms[0], terms[1], train, test))
    return parts


def _by_least_squares(task: Task, folds: Any) -> list[Setting]:
    """Return the best setting of each basis.

    A score is the share of the variance of the targets, or of the classes as 0 and 1, that least squares explain: one
    less the geometric mean of the shares that are left on complete rows and with columns lost.
    """
    found: dict[str, list[Setting]] = {basis: [] for basis in task.bases}
    chosen: list[_Part] = []
    for scaling in task.scalings:
        parts = _parts(task, scaling, folds)
        for basis in task.bases:
            if basis != "spline" or scaling == "standard":
                found[basis].append(_explained(task, Setting(basis, scaling), parts))
        fourier = [setting.score for setting in found.get("fourier", [])]
        if fourier and fourier[-1] == max(fourier):
            chosen = parts
        task.progress.advance()
    if chosen:
        best = max(found["fourier"], key=lambda setting: setting.score)
        wider, narrow, narrower = _GAMMAS
        found["fourier"].append(_explained(task, replace(best, gamma=narrow), chosen))
        gamma = narrower if found["fourier"][-1].score > best.score else wider
        found["fourier"].append(_explained(task, replace(best, gamma=gamma), chosen))
    return [max(settings, key=lambda setting: setting.score) for settings in found.values()]


def _explained(task: Task, setting: Setting, parts: list[_Part]) -> Setting:
    """Return the setting with the best noise and ``C`` of least squares, and its score."""
    is_fourier, unit = setting.basis == "fourier", _unit_of_c(task, setting.basis)
    noises = [task.noise] if is_fourier or task.noise != "auto" else _NOISES
    options = list(itertools.product(noises, _CS if task.C is None else [task.C / unit]))
    losses = np.zeros(len(options))
    for part in parts:
        used = part.matrix.in_basis(setting.basis)
        trained, tested = (
            [part.features.combined(*own, setting.gamma) if is_fourier else own[0][:, used] for own in terms]
            for terms in (part.trained if is_fourier else part.trained[:1], part.tested)
        )
        n_copies, targets, wanted = len(trained), task.targets[part.train], task.targets[part.test]
        weight = np.tile(task.weight[part.train], n_copies)
        moments = _Moments.of(np.vstack(trained), np.vstack([targets] * n_copies), weight)
        scale = max(np.square(wanted - targets.mean(axis=0)).sum(), 1e-300)
        for place, (noise, C) in enumerate(options):
            rates = None if is_fourier else part.matrix.rates(noise)
            blocks = None if rates is None else (part.matrix.numbers[used], rates[used])
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


def _by_fits(task: Task, folds: Any) -> list[Setting]:
    """Return the best setting of each basis, by the scores of fits of the model itself."""
    unit = task.unit if hasattr(task.plain, "epsilon") else 1.0
    Cs, noises = [C * unit for C in _CS] if task.C is None else [task.C], list(_NOISES)
    noises, tried = noises if task.noise == "auto" else [task.noise], []
    for basis in task.bases:
        matrix, lost = task.encode(basis, "standard"), np.random.default_rng(0)
        parts = []
        for train, test in folds:
            other = matrix.take(test)
            copies = [other.X] + [other.lost(task.target_rate, lost)] * (task.target_rate > 0.0)
            parts.append((matrix.X[train], copies, train, test))

        def score(noise: Any, C: float, basis: Any = basis, matrix: Any = matrix, parts: Any = parts) -> Setting:
            model = clone(task.plain).set_params(noise=matrix.noise(noise), C=C, tol=_TOL, missing_rank=5)
            found = []
            for X, tested, train, test in parts:
                model.fit(X, task.y[train], task.weight[train])
                found += [model.score(own, task.y[test], task.weight[test]) for own in tested]
            return Setting(basis, noise=noise, C=C, score=float(np.mean(found)))

        scored = [score(noises[0], C) for C in Cs]
        best = max(scored, key=lambda setting: setting.score)
        scored += [score(noise, best.C) for noise in noises[1:]]
        tried.append(max(scored, key=lambda setting: setting.score))
        task.progress.advance()
    return tried


# The final fit --------------------------------------------------------------------------------------------------------


def fit_setting(task: Task, setting: Setting) -> tuple[FourierFeatures | None, Any, float]:
    """Return the Fourier features of a setting, if it has them, its model, and ``C``."""
    model = clone(task.plain)
    if setting.basis != "fourier":
        matrix = task.encode(setting.basis, setting.scaling)
        model.set_params(C=setting.C, noise=matrix.noise(setting.noise), missing_rank=matrix.rank(RANK))
        return None, model.fit(matrix.X, task.y, sample_weight=task.weight), setting.C
    rows = np.arange(len(task.y))
    if len(rows) > MAX_FOURIER_ROWS:
        rows = np.sort(task.rng.permutation(len(rows))[:MAX_FOURIER_ROWS])
    matrix, weight, targets = task.encode("fourier", setting.scaling, rows), task.weight[rows], task.targets[rows]
    n_components = min(MAX_COMPONENTS, 400 + 80 * targets.shape[1])
    features = fourier_features(matrix, setting.gamma, n_components, task.rng, RANK, weight)
    copies = [features.transform(matrix.X)]
    copies += [
        features.transform(matrix.deleted(None, task.rng)) for _ in range(N_COPIES * (setting.noise is not None))
    ]
    Cs = [setting.C * factor for factor in (_FACTORS if task.C is None else (1.0,))]
    features.projection_, scores, C = _stacked(copies, targets, weight, task.y[rows], Cs, task.rng)
    model.set_params(noise=None, missing="error", C=10.0 * task.unit if hasattr(model, "epsilon") else 10.0)
    n_copies = len(copies)
    model.fit(scores.reshape(-1, targets.shape[1]), np.tile(task.y[rows], n_copies), np.tile(weight, n_copies))
    if not is_classifier(model):  # that of complete rows
        squares = np.square(model.predict(scores[0]) - task.y[rows])
        model.residual_deviation_ = float(np.sqrt(np.average(squares, weights=weight)))
    return features, model, C


def _stacked(
    copies: list[Array], targets: Array, weight: Array, y: Array, Cs: list[float], rng: np.random.Generator
) -> tuple[Array, Array, float]:
    """Return the coefficients of least squares and the best ``C``, and scores by the coefficients of other folds."""
    n_blocks, n_rows = len(copies), len(targets)
    folds = np.empty(n_rows, dtype=int)
    folds[np.lexsort((rng.random(n_rows), y))] = np.arange(n_rows) % _N_FOLDS
    parts = [np.flatnonzero(folds == k) for k in range(_N_FOLDS)]
    sums = []
    for own in parts:
        Z = np.vstack([copy[own] for copy in copies])
        sums.append(_Moments.of(Z, np.tile(targets[own], (n_blocks, 1)), np.tile(weight[own], n_blocks)))
    total = sum(sums[1:], sums[0])
    best, scores, chosen = np.inf, np.empty(0), Cs[0]
    for C in Cs:
        held_out = np.empty((n_blocks, *targets.shape))
        for k, own in enumerate(parts):
            others = [one for j, one in enumerate(sums) if j != k]
            coef, intercept = sum(others[1:], others[0]).solved(C)
            for place, copy in enumerate(copies):
                held_out[place, own] = copy[own] @ coef + intercept
        errors = (np.square(held_out - targets).sum(axis=2) * weight).sum(axis=1) + 1e-300
        loss = np.log(errors[0]) + np.log(np.mean(errors))
        if loss < best:
            best, scores, chosen = loss, held_out, C
    return np.vstack(total.solved(chosen)), scores, chosen


def fourier_features(
    matrix: GroupedMatrix,
    gamma: float,
    n_components: int,
    rng: np.random.Generator,
    rank: int,
    weight: Array | None = None,
) -> FourierFeatures:
    """Return fitted Fourier features, with ``gamma`` as a multiple of that of the variance of the rows."""
    given: dict[str, Any] = {
        "in_kernel": matrix.in_kernel,
        "rank": matrix.rank(rank),
        "random_state": int(rng.integers(2**31)),
    }
    features = FourierFeatures(n_components=n_components, linear=True, **given).fit(matrix.X, sample_weight=weight)
    features.gamma = features.gamma_ = gamma * features.gamma_
    features.omegas_ *= np.sqrt(gamma)
    return features
