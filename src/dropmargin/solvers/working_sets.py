"""Working sets of features for an l1 penalty: Newton's method on the few features whose coefficients may move.

Most coefficients are zero, so steps are taken on the rows restricted to a working set: the features whose coefficient
is not zero, or whose gradient is near ``l1`` or beyond. The gradient by all features is computed between rounds. It
proves the gap, or it changes the working set (Massias et al. 2018).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dropmargin.data import Block, FeatureGroups, Variance
from dropmargin.data.matrix import take_columns
from dropmargin.objective import GroupScores, MomentRows, Moments, Objective
from dropmargin.solvers.newton import newton, proved_gap
from dropmargin.solvers.result import Iteration, Options, Result
from dropmargin.typing import Array

# A working set has the features whose gradient is at least this share of ``l1``: some of them will move later.
_NEAR = 0.8
# Rows are restricted to a working set of at most this share of the features.
_RESTRICTED = 0.3
# The relative gap at which the first round ends.
_FIRST_TOL = 1e-2
# The gap is proved to be within so many times `tol`.
_PROVED = 10.0
_MOST_ROUNDS = 50
# After so many steps within orthants the penalty is smoothed instead.
_MOST_STEPS = 60
# Coefficients of at most these shares of the largest one are set to zero where that does not raise the objective.
_SMALL = (1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4)
_ROUNDING = 1e-14


def working_sets(objective: Objective, coef: Array, options: Options) -> Result:
    """Minimise an objective with an l1 penalty, one output at a time or the classes of a softmax."""
    history: list[Iteration] = []
    tol = options.tol if options.warm else max(options.tol, _FIRST_TOL)
    warm, before, few_steps = options.warm, None, _MOST_STEPS
    for _ in range(_MOST_ROUNDS):
        # 1. The working set, by the gradient of all features.
        point = objective.at(coef)
        features = _likely_features(objective, coef, point.gradient)
        can_restrict = (
            isinstance(objective.loss, MomentRows) and 0 < len(features) <= _RESTRICTED * objective.n_features
        )
        left = options.max_iter - len(history)
        if not can_restrict or left <= 0:
            last = replace(options, max_iter=max(1, left), warm=warm)
            return _joined(_orthant_or_smoothed(objective, coef, last, few_steps), history)
        # 2. Newton's method on the rows of the working set.
        part = restricted(objective, features)
        index = np.append(features, objective.n_features)
        found = _orthant_or_smoothed(part, coef[index], replace(options, tol=tol, max_iter=left, warm=warm), few_steps)
        if found.n_iter > _MOST_STEPS:  # steps within orthants go in circles
            few_steps = 0
        history += [entry._replace(iteration=len(history) + k) for k, entry in enumerate(found.history, 1)]
        coef = np.zeros_like(coef)
        coef[index] = found.coef
        warm = True
        # 3. All features: the gap is proved, or the next round has another set.
        if tol > options.tol:
            tol = options.tol
            continue
        # A set that stays the same has been solved to working precision.
        width = None if found.point is None else found.point.objective.width
        whole = objective.smoothed(width).at(coef) if width is not None else objective.at(coef)
        scale = np.maximum(np.abs(whole.value), np.finfo(float).tiny)
        is_proved = np.all(proved_gap(whole) <= _PROVED * options.tol * scale)
        if is_proved or not found.converged or (before is not None and np.array_equal(features, before)):
            return replace(
                found, coef=coef, objective=whole.plain_value, n_iter=len(history), history=history, point=None
            )
        before = features
    return replace(_joined(found, []), coef=coef, history=history, converged=False, message="too many working sets")


def _orthant_or_smoothed(objective: Objective, coef: Array, options: Options, few_steps: int) -> Result:
    """Return the result of a few steps within orthants, or, where these do not reach it, with the penalty smoothed."""
    history: list[Iteration] = []
    if few_steps:
        found = newton(objective, coef, replace(options, max_iter=min(options.max_iter, few_steps)))
        if found.converged or found.n_iter >= options.max_iter:
            return found
        coef, history = found.coef, found.history
    rest = replace(options, max_iter=options.max_iter - len(history), warm=True)
    smooth = newton(replace(objective, smooths_l1=True), coef, rest)
    whole, coef = replace(objective, width=None), smooth.coef
    value, size = whole.at(coef).value, np.abs(coef[:-1]).max(initial=0.0)
    for share in _SMALL:  # exact zeros, as long as that does not raise the objective
        cleaned = coef.copy()
        cleaned[:-1][np.abs(coef[:-1]) <= share * size] = 0.0
        cleaned_value = whole.at(cleaned).value
        if np.all(cleaned_value <= value + _ROUNDING * np.abs(value)):
            coef, value = cleaned, np.minimum(value, cleaned_value)
    return replace(_joined(smooth, history), coef=coef, objective=value, point=None)


def _joined(found: Result, history: list[Iteration]) -> Result:
    """Return a result after the iterations of others."""
    own = [entry._replace(iteration=len(history) + k) for k, entry in enumerate(found.history, 1)]
    return replace(found, n_iter=len(history) + len(own), history=history + own)


def _likely_features(objective: Objective, coef: Array, gradient: Array) -> Array:
    """Return the features whose coefficients are not zero, or likely to become so."""
    penalty = objective.penalty
    slope = (gradient - penalty.at(coef)[1])[:-1]
    return np.flatnonzero(((coef[:-1] != 0.0) | (np.abs(slope) > _NEAR * penalty.l1)).any(axis=1))


def restricted(objective: Objective, features: Array) -> Objective:
    """Return the objective of some features, as if the coefficients of the others were zero."""
    variance = objective.variance.take(features)
    groups = None
    scores: Moments | GroupScores = Moments(variance)
    if isinstance(objective.scores, GroupScores):
        whole = objective.scores.groups
        kept = whole.numbers[features]
        numbers = np.unique(kept, return_inverse=True)[1]
        groups = FeatureGroups(numbers, whole.slope[np.unique(kept)], whole.reference[features])
        scores = GroupScores(groups)
    data = objective.data.transformed(_take_features, features, variance, groups)
    share = objective.share * len(features) / objective.n_features
    return replace(
        objective, data=data, scores=scores, variance=variance, n_features=len(features), share=share, cache={}
    )


def _take_features(block: Block, features: Array, variance: Variance, groups: FeatureGroups | None) -> Block:
    return Block(take_columns(block.X, features), block.y, block.sample_weight, variance, groups)
