"""The classifiers that choose their noise and ``C`` by cross-validation; they differ in the plain classifier."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dropmargin.estimators import DropoutLogisticRegression, DropoutSVC, NoisyLinearClassifier
from dropmargin.estimators.classification import Classification, MarginalisedClassifier
from dropmargin.estimators.parameters import ApproximationParameter, LossParameter
from dropmargin.estimators.scorers import Accuracy
from dropmargin.model_selection.base import MarginalisedModelCV
from dropmargin.noise import Noise
from dropmargin.typing import Array


def target_score(noise: Noise, scoring: Any, multi_class: str) -> Accuracy:
    """Return the score of a row under a noise that is the parameter ``target_noise``."""
    if scoring is not None:
        raise ValueError(
            f"scoring={scoring!r} scores complete rows, target_noise={noise!r} rows under noise by their expected "
            "accuracy: pass one of them."
        )
    if multi_class == "ovo":
        raise ValueError("target_noise needs multi_class='ovr', got multi_class='ovo'.")
    return Accuracy()


class MarginalisedClassifierCV(Classification, MarginalisedModelCV):
    """Base of the classifiers that choose noise and ``C`` by cross-validation."""

    _plain_class: ClassVar[type[MarginalisedClassifier]]
    _default_scorer = Accuracy()
    score = MarginalisedModelCV.score  # not that of the mixin

    def _check_training_rows(self, index: int, y: Array, classes: Array | None) -> None:
        assert classes is not None
        present = np.unique(y).tolist()
        absent = [label for label in classes.tolist() if label not in present]
        if absent:
            raise ValueError(
                f"Fold {index} of cv has no training row of class {absent[0]!r}. Use fewer folds, stratified ones "
                "(sklearn.model_selection.StratifiedKFold), or leave out classes with hardly any rows."
            )

    def _target_score(self, noise: Noise) -> Accuracy:
        return target_score(noise, self.scoring, self.multi_class)


class DropoutSVCCV(ApproximationParameter, MarginalisedClassifierCV):
    """`DropoutSVC` with noise and ``C`` chosen by cross-validation.

    On each fold the grid is solved along a path: each point starts from the solutions of its neighbours, and only
    points that may be chosen are solved to the full tolerance.

    Parameters that are not listed here are those of `DropoutSVC`. ``class_weight="balanced"`` refers to the
    training rows of each fold.

    Parameters
    ----------
    noises : int or list of float, Noise or None, default=10
        Candidates for the noise: dropout rates, noises of any kind, ``None`` for no noise. An integer is the number of
        dropout rates, evenly spaced from 0 to 0.9.
    Cs : int or list of float, default=13
        Candidates for ``C``. An integer is the number of values, on a logarithmic scale that suits the data.
    cv : int, splitter, iterable or None, default=None
        As in `sklearn.model_selection.GridSearchCV`; ``None`` means five stratified folds.
    scoring : str, callable or None, default=None
        The score to maximise: a name or a scorer of scikit-learn; ``None`` means accuracy.
    target_noise : float, Noise or None, default=None
        The noise under which the model will be used, which held-out rows are scored with. A number means
        ``DropoutNoise(rate=target_noise)``. A search on complete rows alone prefers little noise.
        With dropout, and ``missing="rescale"`` or ``"conditional"``, a dropped feature is a missing one: the score of a
        row is the share of its copies whose label is predicted. In each copy, every feature, or group of features, is
        NaN with the probability ``rate``. There are ``8192 / n_samples`` copies of a row, rounded up. The copies of a
        row are the same for all points of the grid and in all folds: NaN are the features ``d`` with
        ``u[(c * n_samples + i) % len(u), d] < rate`` in copy ``c`` of row ``i``, where ``u`` are
        ``numpy.random.default_rng(0).random((m, n_features))``, or ``(m, n_groups)`` with one column per group,
        and ``m`` is the smaller of the number of copies and ``max(64, 2**22 // n_features)``.
        With ``missing="error"``, or with other noise, nothing is missing: the score is the expected accuracy under the
        noise, in closed form (`DropoutSVC.expected_accuracy`).
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
    best_estimator_ : DropoutSVC
        The plain classifier with the chosen noise and ``C``, fitted to all rows.
    coef_, intercept_, classes_, n_features_in_, feature_names_in_, feature_means_
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
    coefs_paths_ : ndarray of shape (n_folds, n_noises, n_Cs, n_outputs, n_features + 1)
        The coefficients, followed by the intercept. Only if they are stored.
    n_iter_ : ndarray of shape (n_folds, n_noises, n_Cs)
        Numbers of outer iterations; 0 for points that were interpolated.
    refined_ : ndarray of bool of shape (n_noises, n_Cs)
        Whether a point was solved to ``tol / 10``. Other points were solved to a low tolerance or, where ``n_iter_`` is
        0, interpolated.

    See Also
    --------
    DropoutSVC : The classifier with a given noise and ``C``.
    noise_path : The solutions along the grid, without cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutSVCCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = DropoutSVCCV(noises=[0, 0.1, 0.5], Cs=[0.01, 0.1, 1, 10]).fit(scale(X), y)
    >>> model.best_score_ > 0.97
    True
    >>> model.cv_results_["params"][0]
    {'noise': DropoutNoise(rate=0.0), 'C': 0.01}
    """

    _plain_class = DropoutSVC


class DropoutLogisticRegressionCV(ApproximationParameter, MarginalisedClassifierCV):
    """`DropoutLogisticRegression` with noise and ``C`` chosen by cross-validation.

    On each fold the grid is solved along a path: each point starts from the solutions of its neighbours, and only
    points that may be chosen are solved to the full tolerance.

    Parameters that are not listed here are those of `DropoutLogisticRegression`. ``class_weight="balanced"`` refers to
    the training rows of each fold.

    Parameters
    ----------
    noises : int or list of float, Noise or None, default=10
        Candidates for the noise: dropout rates, noises of any kind, ``None`` for no noise. An integer is the number of
        dropout rates, evenly spaced from 0 to 0.9.
    Cs : int or list of float, default=13
        Candidates for ``C``. An integer is the number of values, on a logarithmic scale that suits the data.
    cv : int, splitter, iterable or None, default=None
        As in `sklearn.model_selection.GridSearchCV`; ``None`` means five stratified folds.
    scoring : str, callable or None, default=None
        The score to maximise: a name or a scorer of scikit-learn; ``None`` means accuracy.
    target_noise : float, Noise or None, default=None
        The noise under which the model will be used, which held-out rows are scored with. A number means
        ``DropoutNoise(rate=target_noise)``. A search on complete rows alone prefers little noise.
        With dropout, and ``missing="rescale"`` or ``"conditional"``, a dropped feature is a missing one: the score of a
        row is the share of its copies whose label is predicted. In each copy, every feature, or group of features, is
        NaN with the probability ``rate``. There are ``8192 / n_samples`` copies of a row, rounded up. The copies of a
        row are the same for all points of the grid and in all folds: NaN are the features ``d`` with
        ``u[(c * n_samples + i) % len(u), d] < rate`` in copy ``c`` of row ``i``, where ``u`` are
        ``numpy.random.default_rng(0).random((m, n_features))``, or ``(m, n_groups)`` with one column per group,
        and ``m`` is the smaller of the number of copies and ``max(64, 2**22 // n_features)``.
        With ``missing="error"``, or with other noise, nothing is missing: the score is the expected accuracy under the
        noise, in closed form (`DropoutSVC.expected_accuracy`).
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
    best_estimator_ : DropoutLogisticRegression
        The plain classifier with the chosen noise and ``C``, fitted to all rows.
    coef_, intercept_, classes_, n_features_in_, feature_names_in_, feature_means_
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
    coefs_paths_ : ndarray of shape (n_folds, n_noises, n_Cs, n_outputs, n_features + 1)
        The coefficients, followed by the intercept. Only if they are stored.
    n_iter_ : ndarray of shape (n_folds, n_noises, n_Cs)
        Numbers of outer iterations; 0 for points that were interpolated.
    refined_ : ndarray of bool of shape (n_noises, n_Cs)
        Whether a point was solved to ``tol / 10``. Other points were solved to a low tolerance or, where ``n_iter_`` is
        0, interpolated.

    See Also
    --------
    DropoutLogisticRegression : The classifier with a given noise and ``C``.
    noise_path : The solutions along the grid, without cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutLogisticRegressionCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = DropoutLogisticRegressionCV(noises=[0, 0.1, 0.3], Cs=[0.1, 1, 10, 100]).fit(scale(X), y)
    >>> model.predict_proba(scale(X)).shape
    (569, 2)
    """

    _plain_class = DropoutLogisticRegression


class NoisyLinearClassifierCV(LossParameter, ApproximationParameter, MarginalisedClassifierCV):
    """`NoisyLinearClassifier`, for any loss, with noise and ``C`` chosen by cross-validation.

    On each fold the grid is solved along a path: each point starts from the solutions of its neighbours, and only
    points that may be chosen are solved to the full tolerance.

    Parameters that are not listed here are those of `NoisyLinearClassifier`. ``class_weight="balanced"`` refers to the
    training rows of each fold.

    Parameters
    ----------
    noises : int or list of float, Noise or None, default=10
        Candidates for the noise: dropout rates, noises of any kind, ``None`` for no noise. An integer is the number of
        dropout rates, evenly spaced from 0 to 0.9.
    Cs : int or list of float, default=13
        Candidates for ``C``. An integer is the number of values, on a logarithmic scale that suits the data.
    cv : int, splitter, iterable or None, default=None
        As in `sklearn.model_selection.GridSearchCV`; ``None`` means five stratified folds.
    scoring : str, callable or None, default=None
        The score to maximise: a name or a scorer of scikit-learn; ``None`` means accuracy.
    target_noise : float, Noise or None, default=None
        The noise under which the model will be used, which held-out rows are scored with. A number means
        ``DropoutNoise(rate=target_noise)``. A search on complete rows alone prefers little noise.
        With dropout, and ``missing="rescale"`` or ``"conditional"``, a dropped feature is a missing one: the score of a
        row is the share of its copies whose label is predicted. In each copy, every feature, or group of features, is
        NaN with the probability ``rate``. There are ``8192 / n_samples`` copies of a row, rounded up. The copies of a
        row are the same for all points of the grid and in all folds: NaN are the features ``d`` with
        ``u[(c * n_samples + i) % len(u), d] < rate`` in copy ``c`` of row ``i``, where ``u`` are
        ``numpy.random.default_rng(0).random((m, n_features))``, or ``(m, n_groups)`` with one column per group,
        and ``m`` is the smaller of the number of copies and ``max(64, 2**22 // n_features)``.
        With ``missing="error"``, or with other noise, nothing is missing: the score is the expected accuracy under the
        noise, in closed form (`DropoutSVC.expected_accuracy`).
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
    best_estimator_ : NoisyLinearClassifier
        The plain classifier with the chosen noise and ``C``, fitted to all rows.
    coef_, intercept_, classes_, n_features_in_, feature_names_in_, feature_means_
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
    coefs_paths_ : ndarray of shape (n_folds, n_noises, n_Cs, n_outputs, n_features + 1)
        The coefficients, followed by the intercept. Only if they are stored.
    n_iter_ : ndarray of shape (n_folds, n_noises, n_Cs)
        Numbers of outer iterations; 0 for points that were interpolated.
    refined_ : ndarray of bool of shape (n_noises, n_Cs)
        Whether a point was solved to ``tol / 10``. Other points were solved to a low tolerance or, where ``n_iter_`` is
        0, interpolated.

    See Also
    --------
    NoisyLinearClassifier : The classifier with a given noise and ``C``.
    noise_path : The solutions along the grid, without cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import GaussianNoise, NoisyLinearClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> noises = [None, GaussianNoise(scale=0.1), GaussianNoise(scale=1.0)]
    >>> model = NoisyLinearClassifierCV("quadratic", noises=noises, Cs=[0.01, 0.1, 1, 10]).fit(scale(X), y)
    >>> model.best_score_ > 0.94
    True
    """

    _plain_class = NoisyLinearClassifier
