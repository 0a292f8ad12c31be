"""The solutions along a grid of noises and values of ``C``, without cross-validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.utils.validation import _num_samples

from dropmargin.estimators import DropoutSVC
from dropmargin.estimators.classification import MarginalisedClassifier
from dropmargin.estimators.fitting import classes_of, problem_of
from dropmargin.estimators.rows import check_rows
from dropmargin.estimators.scorers import OfGivenRows, target_scorer
from dropmargin.model_selection.classifiers import target_score
from dropmargin.model_selection.folds import Fold
from dropmargin.model_selection.grid import check_grid, check_noise, check_problems
from dropmargin.model_selection.search import Search, try_scorer, warn_unconverged
from dropmargin.noise import Noise
from dropmargin.typing import Array


@dataclass(frozen=True, eq=False)
class NoisePath:
    """Solutions along a grid of noises and values of ``C``, as `noise_path` returns them.

    Attributes
    ----------
    noises : tuple of Noise or None
        The noises of the grid.
    Cs : ndarray of shape (n_Cs,)
        The values of ``C`` of the grid, in ascending order.
    coefs : ndarray of shape (n_noises, n_Cs, n_outputs, n_features)
        The coefficients.
    intercepts : ndarray of shape (n_noises, n_Cs, n_outputs)
        The intercepts.
    objectives : ndarray of shape (n_noises, n_Cs)
        The objective at each solution, summed over the outputs.
    scores : ndarray of shape (n_noises, n_Cs)
        The score of each solution.
    n_iter : ndarray of shape (n_noises, n_Cs)
        Numbers of outer iterations.
    converged : ndarray of bool of shape (n_noises, n_Cs)
        Whether the solver reached the tolerance.
    classes : ndarray of shape (n_classes,)
        The class labels, sorted.

    See Also
    --------
    noise_path : Computes the solutions.
    NoisePathDisplay : Plots them.
    """

    noises: tuple[Noise | None, ...]
    Cs: Array
    coefs: Array
    intercepts: Array
    objectives: Array
    scores: Array
    n_iter: Array
    converged: Array
    classes: Array


def noise_path(
    X: Any,
    y: Any,
    noises: Any = 10,
    Cs: Any = 13,
    *,
    estimator: Any = None,
    X_test: Any = None,
    y_test: Any = None,
    scoring: Any = None,
    target_noise: Any = None,
    sample_weight: Any = None,
    verbose: int = 1,
) -> NoisePath:
    """Return coefficients, objectives and scores for every pair of a noise and a ``C``.

    Each point starts from the solutions of its neighbours, so the grid takes far less time than separate fits.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Training data.
    y : array-like of shape (n_samples,)
        Labels.
    noises : int or list of float, Noise or None, default=10
        Dropout rates, noises of any kind, ``None`` for no noise. An integer is the number of dropout rates, evenly
        spaced from 0 to 0.9.
    Cs : int or list of float, default=13
        Values of ``C``. An integer is the number of values, on a logarithmic scale that suits the data.
    estimator : classifier, default=None
        The classifier whose other parameters (loss, tolerance, class weights) are used, such as
        ``DropoutLogisticRegression(tol=1e-6)``; ``None`` means ``DropoutSVC()``. It is not changed.
    X_test : {array-like, sparse matrix} of shape (n_test, n_features), default=None
        Rows to score; ``None`` means the training rows.
    y_test : array-like of shape (n_test,), default=None
        Labels of these rows.
    scoring : str, callable or None, default=None
        The score: a name or a scorer of scikit-learn; ``None`` means accuracy.
    target_noise : float, Noise or None, default=None
        Scores are the accuracy under this noise: of copies with missing features, or expected, see `DropoutSVCCV`. The
        number of copies is that for the rows that are scored.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the training rows.
    verbose : int, default=1
        0 for no progress bar.

    Returns
    -------
    path : NoisePath
        The solutions.

    See Also
    --------
    DropoutSVCCV : Chooses noise and ``C`` by cross-validation.
    NoisePathDisplay : Plots the path.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import noise_path
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> path = noise_path(scale(X), y, noises=[0, 0.1, 0.5], Cs=[0.01, 0.1, 1])
    >>> path.coefs.shape
    (3, 3, 1, 30)
    """
    # Imported here, because the import takes a large part of a second.
    from sklearn.metrics import check_scoring

    if estimator is None:
        estimator = DropoutSVC()
    if isinstance(estimator, type) or not isinstance(estimator, MarginalisedClassifier):
        raise TypeError(f"estimator must be a classifier of dropmargin, such as DropoutSVC(), got {estimator!r}.")
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be passed together, or neither of them.")
    model = clone(estimator).set_params(noise=None)
    problem, rows = problem_of(model), check_rows(model, X, y, sample_weight)
    classes = classes_of(model, rows)
    grid = check_grid(noises, Cs, rows)
    check_problems(model, rows, grid)
    given = (X, y) if X_test is None else (X_test, y_test)
    target = check_noise("target_noise", target_noise, rows)
    if target is None:
        scorer = check_scoring(model, scoring="accuracy" if scoring is None else scoring)
    else:
        shape, own = (_num_samples(given[0]), rows.n_features), target_score(target, scoring, estimator.multi_class)
        scorer = OfGivenRows(target_scorer(target, estimator.missing, shape, rows.feature_names, own))
    fold = Fold(rows, given)
    n_threads = effective_n_jobs(estimator.n_jobs)
    search = Search(model, problem, grid, scorer, problem.tol, problem.tol, rows.n_rows, n_threads=n_threads)
    try_scorer(search, fold)
    outcome = search.run([lambda: fold], verbose)
    warn_unconverged(outcome.converged, stacklevel=3)
    assert outcome.coefs is not None
    assert classes is not None
    return NoisePath(
        noises=grid.noises,
        Cs=grid.Cs,
        coefs=outcome.coefs[0, ..., :-1],
        intercepts=outcome.coefs[0, ..., -1],
        objectives=outcome.objectives[0],
        scores=outcome.scores[0],
        n_iter=outcome.n_iter[0],
        converged=outcome.converged[0],
        classes=classes,
    )
