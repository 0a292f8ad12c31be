"""The regressors that choose their noise and ``C`` by cross-validation; they differ in the plain regressor."""

from __future__ import annotations

from typing import ClassVar

from dropmargin.estimators import DropoutRidge, DropoutSVR
from dropmargin.estimators.parameters import EpsilonParameter
from dropmargin.estimators.regression import MarginalisedRegressor, Regression
from dropmargin.estimators.scorers import R2, Error
from dropmargin.model_selection.base import MarginalisedModelCV
from dropmargin.noise import Noise
from dropmargin.typing import Array

# The errors under ``target_noise`` by the name of ``scoring``.
_METRICS = {"neg_mean_squared_error": "squared", "neg_mean_absolute_error": "absolute"}


class MarginalisedRegressorCV(Regression, MarginalisedModelCV):
    """Base of the regressors that choose noise and ``C`` by cross-validation."""

    _plain_class: ClassVar[type[MarginalisedRegressor]]
    _default_scorer = R2()
    score = MarginalisedModelCV.score  # not that of the mixin
    #: The error under ``target_noise`` for ``scoring=None``.
    _target_metric: ClassVar[str] = "squared"

    def _check_training_rows(self, index: int, y: Array, classes: Array | None) -> None:
        if not len(y):
            raise ValueError(f"Fold {index} of cv has no training row, or only rows of weight 0.")

    def _target_score(self, noise: Noise) -> Error:
        if self.scoring is not None and (not isinstance(self.scoring, str) or self.scoring not in _METRICS):
            raise ValueError(
                f"With target_noise, scoring must be None or one of {sorted(_METRICS)}, whose expectation under noise "
                f"has a closed form; got {self.scoring!r}."
            )
        return Error(self._target_metric if self.scoring is None else _METRICS[self.scoring])


class DropoutRidgeCV(MarginalisedRegressorCV):
    """`DropoutRidge` with noise and ``C`` chosen by cross-validation.

    On each fold the grid is solved along a path: each point starts from the solutions of its neighbours, and only
    points that may be chosen are solved to the full tolerance.

    Parameters that are not listed here are those of `DropoutRidge`.

    Parameters
    ----------
    noises : int or list of float, Noise or None, default=10
        Candidates for the noise: dropout rates, noises of any kind, ``None`` for no noise. An integer is the number of
        dropout rates, evenly spaced from 0 to 0.9.
    Cs : int or list of float, default=13
        Candidates for ``C``. An integer is the number of values, on a logarithmic scale that suits the data.
    cv : int, splitter, iterable or None, default=None
        As in `sklearn.model_selection.GridSearchCV`; ``None`` means five folds.
    scoring : str, callable or None, default=None
        The score to maximise: a name or a scorer of scikit-learn; ``None`` means the coefficient of
        determination R^2.
    target_noise : float, Noise or None, default=None
        The noise under which the model will be used, which held-out rows are scored with: the score is then minus the
        squared error; ``scoring`` may choose between ``"neg_mean_squared_error"`` and
        ``"neg_mean_absolute_error"``. A number means ``DropoutNoise(rate=target_noise)``. A search on complete rows
        alone prefers little noise.
        With dropout, and ``missing="rescale"`` or ``"conditional"``, a dropped feature is a missing one: the error of a
        row is the mean error of its copies. In each copy, every feature, or group of features, is NaN with the
        probability ``rate``. There are ``8192 / n_samples`` copies of a row, rounded up, which are the same for all
        points of the grid and in all folds; see `DropoutSVCCV` for how they are drawn.
        With ``missing="error"``, or with other noise, nothing is missing: the error is the expected one under the
        noise, in closed form (`DropoutRidge.expected_error`).
    rule : {"best", "one-se"}, default="best"
        ``"best"`` chooses the highest mean score. ``"one-se"`` chooses the smallest ``C`` with a score within one
        standard error of it, and the best noise for that ``C``. Of equal scores, the smallest ``C`` is chosen, then the
        first noise.
    prune : bool, default=True
        Whether grid points that cannot be chosen are solved to a low tolerance, or interpolated between their
        neighbours. The chosen point and all that come close to it are always solved to ``tol / 10``.
    store_coefs : bool or "auto", default="auto"
        Whether to store the coefficients of every grid point on every fold in ``coefs_paths_``; ``"auto"`` stores up to
        256 MB. Without them the last fits start from zero.
    n_jobs : int or None, default=None
        Number of threads that share the folds, -1 for all cores. It does not change the result.
    verbose : int, default=1
        0 for no progress bar. A bar is shown only on a terminal or in a notebook, after two seconds.

    Attributes
    ----------
    C_ : float
        The chosen ``C``.
    noise_ : Noise or None
        The chosen noise.
    best_score_ : float
        The mean score of the chosen noise and ``C`` over the folds.
    best_index_ : tuple of int
        Their indices in ``noises_`` and ``Cs_``.
    best_estimator_ : DropoutRidge
        The plain regressor with the chosen noise and ``C``, fitted to all rows.
    coef_, intercept_, n_features_in_, feature_names_in_, feature_means_
        The attributes of ``best_estimator_``.
    noises_ : tuple of Noise or None
        The noises of the grid.
    Cs_ : ndarray of shape (n_Cs,)
        The values of ``C`` of the grid, in ascending order.
    scores_ : ndarray of shape (n_folds, n_noises, n_Cs)
        The scores on the held-out rows.
    cv_results_ : dict of ndarray
        The same scores as those of `sklearn.model_selection.GridSearchCV`, for ``pandas.DataFrame(model.cv_results_)``:
        ``params``, ``param_noise``, ``param_C``, ``split0_test_score`` and so on, ``mean_test_score``,
        ``std_test_score``, ``rank_test_score``, and ``refined``. The points are those of ``scores_``, with ``C``
        varying fastest. There are no times, because points on a path have no time of their own.
    coefs_paths_ : ndarray of shape (n_folds, n_noises, n_Cs, 1, n_features + 1)
        The coefficients, followed by the intercept. Only if they are stored.
    n_iter_ : ndarray of shape (n_folds, n_noises, n_Cs)
        Numbers of outer iterations.
    refined_ : ndarray of bool of shape (n_noises, n_Cs)
        Whether a point was solved to ``tol / 10``. Other points were solved to a low tolerance or, where ``n_iter_`` is
        0, interpolated.

    See Also
    --------
    DropoutRidge : The regressor with a given noise and ``C``.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutRidgeCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DropoutRidgeCV(noises=[0, 0.1, 0.3], Cs=[0.001, 0.01, 0.1, 1, 10], target_noise=0.3).fit(scale(X), y)
    >>> model.noise_
    DropoutNoise(rate=0.3)
    """

    _plain_class = DropoutRidge


class DropoutSVRCV(EpsilonParameter, MarginalisedRegressorCV):
    """`DropoutSVR` with noise and ``C`` chosen by cross-validation.

    On each fold the grid is solved along a path: each point starts from the solutions of its neighbours, and only
    points that may be chosen are solved to the full tolerance.

    Parameters that are not listed here are those of `DropoutSVR`.

    Parameters
    ----------
    noises : int or list of float, Noise or None, default=10
        Candidates for the noise: dropout rates, noises of any kind, ``None`` for no noise. An integer is the number of
        dropout rates, evenly spaced from 0 to 0.9.
    Cs : int or list of float, default=13
        Candidates for ``C``. An integer is the number of values, on a logarithmic scale that suits the data.
    cv : int, splitter, iterable or None, default=None
        As in `sklearn.model_selection.GridSearchCV`; ``None`` means five folds.
    scoring : str, callable or None, default=None
        The score to maximise: a name or a scorer of scikit-learn; ``None`` means the coefficient of
        determination R^2.
    target_noise : float, Noise or None, default=None
        The noise under which the model will be used, which held-out rows are scored with: the score is then minus the
        absolute error; ``scoring`` may choose between ``"neg_mean_squared_error"`` and
        ``"neg_mean_absolute_error"``. A number means ``DropoutNoise(rate=target_noise)``. A search on complete rows
        alone prefers little noise.
        With dropout, and ``missing="rescale"`` or ``"conditional"``, a dropped feature is a missing one: the error of a
        row is the mean error of its copies. In each copy, every feature, or group of features, is NaN with the
        probability ``rate``. There are ``8192 / n_samples`` copies of a row, rounded up, which are the same for all
        points of the grid and in all folds; see `DropoutSVCCV` for how they are drawn.
        With ``missing="error"``, or with other noise, nothing is missing: the error is the expected one under the
        noise, in closed form (`DropoutRidge.expected_error`).
    rule : {"best", "one-se"}, default="best"
        ``"best"`` chooses the highest mean score. ``"one-se"`` chooses the smallest ``C`` with a score within one
        standard error of it, and the best noise for that ``C``. Of equal scores, the smallest ``C`` is chosen, then the
        first noise.
    prune : bool, default=True
        Whether grid points that cannot be chosen are solved to a low tolerance, or interpolated between their
        neighbours. The chosen point and all that come close to it are always solved to ``tol / 10``.
    store_coefs : bool or "auto", default="auto"
        Whether to store the coefficients of every grid point on every fold in ``coefs_paths_``; ``"auto"`` stores up to
        256 MB. Without them the last fits start from zero.
    n_jobs : int or None, default=None
        Number of threads that share the folds, -1 for all cores. It does not change the result.
    verbose : int, default=1
        0 for no progress bar. A bar is shown only on a terminal or in a notebook, after two seconds.

    Attributes
    ----------
    C_ : float
        The chosen ``C``.
    noise_ : Noise or None
        The chosen noise.
    best_score_ : float
        The mean score of the chosen noise and ``C`` over the folds.
    best_index_ : tuple of int
        Their indices in ``noises_`` and ``Cs_``.
    best_estimator_ : DropoutSVR
        The plain regressor with the chosen noise and ``C``, fitted to all rows.
    coef_, intercept_, n_features_in_, feature_names_in_, feature_means_
        The attributes of ``best_estimator_``.
    noises_ : tuple of Noise or None
        The noises of the grid.
    Cs_ : ndarray of shape (n_Cs,)
        The values of ``C`` of the grid, in ascending order.
    scores_ : ndarray of shape (n_folds, n_noises, n_Cs)
        The scores on the held-out rows.
    cv_results_ : dict of ndarray
        The same scores as those of `sklearn.model_selection.GridSearchCV`, for ``pandas.DataFrame(model.cv_results_)``:
        ``params``, ``param_noise``, ``param_C``, ``split0_test_score`` and so on, ``mean_test_score``,
        ``std_test_score``, ``rank_test_score``, and ``refined``. The points are those of ``scores_``, with ``C``
        varying fastest. There are no times, because points on a path have no time of their own.
    coefs_paths_ : ndarray of shape (n_folds, n_noises, n_Cs, 1, n_features + 1)
        The coefficients, followed by the intercept. Only if they are stored.
    n_iter_ : ndarray of shape (n_folds, n_noises, n_Cs)
        Numbers of outer iterations.
    refined_ : ndarray of bool of shape (n_noises, n_Cs)
        Whether a point was solved to ``tol / 10``. Other points were solved to a low tolerance or, where ``n_iter_`` is
        0, interpolated.

    See Also
    --------
    DropoutSVR : The regressor with a given noise and ``C``.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutSVRCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DropoutSVRCV(noises=[0, 0.1, 0.3], Cs=[0.1, 1, 10, 100], target_noise=0.3).fit(scale(X), y)
    >>> model.noise_
    DropoutNoise(rate=0.1)
    """

    _plain_class = DropoutSVR
    _target_metric = "absolute"
