"""The public regressors. They differ in their loss and its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.estimators.parameters import ApproximationParameter, EpsilonParameter, check_parameter, parameter
from dropmargin.estimators.regression import MarginalisedRegressor
from dropmargin.losses import REGRESSION_LOSSES, EpsilonInsensitive, Loss, Quadratic, as_loss
from dropmargin.typing import Array


class DropoutRidge(MarginalisedRegressor):
    """Ridge regression trained under noise on its features.

    Minimises ``R(w) + C sum_i s_i ((y_i - m_i)^2 + v_i)`` over the coefficients ``w`` and the intercept ``b``, where
    ``m_i = w.x_i + b`` is the mean and ``v_i`` the variance of the score of row ``i`` under the noise, ``s_i`` is its
    sample weight and ``R`` the penalty. The loss is the expected squared error, exact for every noise. No corrupted
    rows are sampled: with an l2 penalty the coefficients have a closed form. With ``noise=None`` it is
    ``sklearn.linear_model.Ridge(alpha=1 / (2 * C))``.

    Parameters
    ----------
    noise : float, Noise or None, default=0.1
        The noise on the features. A number ``q`` in [0, 1) means ``DropoutNoise(rate=q)``; ``None`` means no noise.
    C : float, default=1.0
        Inverse strength of the penalty: ``C`` multiplies the loss, as in `sklearn.svm.LinearSVR`.
    l1_ratio : float, default=0.0
        The penalty is ``l1_ratio |w|_1 + (1 - l1_ratio) / 2 |w|_2^2``: 0 is l2, 1 is l1, and a number between them is
        the elastic net. The intercept is not penalised.
    solver : {"auto", "newton", "irls", "lbfgs"}, default="auto"
        ``"newton"``: Newton steps; with a dense ``X`` of up to 1500 features or rows one step is exact, by a
        factorisation. ``"irls"`` is much the same for this loss; ``"lbfgs"``: L-BFGS. ``"auto"`` is ``"newton"``, the
        only solver for an l1 or elastic-net penalty.
    tol : float, default=1e-4
        The relative gap ``(J - J*) / J`` of the objective to stop at, an estimate.
    max_iter : int, default=1000
        The largest number of outer iterations.
    fit_intercept : bool, default=True
        Whether to fit an intercept. It is neither corrupted nor penalised.
    missing : {"error", "rescale", "conditional"}, default="error"
        What NaN in ``X`` means: an error, or a missing feature, also in training. A column that a data frame lacks is
        missing in every row. At prediction the score is, with ``"rescale"``,
        ``b + w.mu + 1 / share * sum_observed w_d (x_d - mu_d)``, where ``mu`` are the training means and ``share`` is
        the observed share of ``sum_d |w_d| sd_d``, at least half of that of the features; with ``"conditional"`` it is
        the expected score given the observed features, all being Gaussian with low-rank plus diagonal covariance.
    missing_rank : int or None, default=None
        Number of factors of that covariance. ``None`` chooses it by the likelihood of held-out rows.
    conformal : bool, default=False
        Whether `fit` learns from held-out rows what `predict_interval` needs: by five more fits, in a search by none.
    n_jobs : int or None, default=None
        Number of threads that share the rows, -1 for all cores. It does not change the result.
    verbose : int, default=0
        Whether to print a line per iteration to the standard error stream.
    warm_start : bool, default=False
        Whether to start from the coefficients of the last fit, if their shape is the same.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients. A CSR array of one row after `sparsify`.
    intercept_ : float
        The intercept.
    n_iter_ : int
        Number of outer iterations.
    n_passes_ : float
        Number of passes over the data. A product with ``X`` and one with its transpose are one pass.
    objective_ : float
        The objective at the solution.
    converged_ : bool
        Whether the solver reached ``tol``.
    history_ : list of Iteration
        Named tuples (iteration, objective, gap, passes, n_active), one per outer iteration.
    feature_means_, feature_deviations_ : ndarray of shape (n_features,)
        Mean and standard deviation of the observed entries of each feature, weighted by the sample weights. The
        deviations only with ``missing="rescale"``.
    feature_factors_, residual_variances_ : ndarray of shape (n_features, rank) and (n_features,)
        Only with ``missing="conditional"``: the covariance of the features is ``U U' + diag(residual_variances_)``.
    conformal_scores_, conformal_shares_ : ndarray of shape (n_levels, n_rows) and (n_levels,)
        Sorted errors of held-out rows for each share of missing features; only with ``conformal``.
    residual_deviation_ : float
        Standard deviation of the residuals of complete training rows, with the degrees of freedom that the coefficients
        leave, for `predict_interval`. Only if these are more than zero, and after a fit in memory.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, only if ``X`` has column names that are all strings.

    See Also
    --------
    DropoutRidgeCV : Chooses noise and ``C`` by cross-validation.
    DropoutSVR : The epsilon-insensitive loss.
    NoisyLinearRegressor : Any loss of regression.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DropoutRidge(noise=0.1).fit(scale(X), y)
    >>> model.score(scale(X), y) > 0.5
    True
    """

    def _make_loss(self) -> Loss:
        return Quadratic()


class DropoutSVR(EpsilonParameter, MarginalisedRegressor):
    """Linear support vector regression trained under noise on its features.

    Minimises ``R(w) + C sum_i s_i phi(y_i; m_i, v_i)`` over the coefficients ``w`` and the intercept ``b``, where
    ``m_i = w.x_i + b`` is the mean and ``v_i`` the variance of the score of row ``i`` under the noise, ``s_i`` is its
    sample weight and ``R`` the penalty. The loss is an upper bound on the expected epsilon-insensitive loss,
    ``phi = h(y - m - epsilon, v) + h(m - y - epsilon, v)`` with ``h(z, v) = (z + sqrt(z^2 + v)) / 2``: the bound of
    the hinge loss [1]_ for each side. No corrupted rows are sampled. With ``noise=None`` it is ordinary support vector
    regression with an unpenalised intercept.

    Parameters
    ----------
    noise : float, Noise or None, default=0.1
        The noise on the features. A number ``q`` in [0, 1) means ``DropoutNoise(rate=q)``; ``None`` means no noise.
    C : float, default=1.0
        Inverse strength of the penalty: ``C`` multiplies the loss, as in `sklearn.svm.LinearSVR`.
    l1_ratio : float, default=0.0
        The penalty is ``l1_ratio |w|_1 + (1 - l1_ratio) / 2 |w|_2^2``: 0 is l2, 1 is l1, and a number between them is
        the elastic net. The intercept is not penalised.
    solver : {"auto", "newton", "irls", "lbfgs"}, default="auto"
        ``"newton"``: iteratively reweighted least squares at first, then Newton steps; ``"irls"``: reweighted least
        squares alone; ``"lbfgs"``: L-BFGS. ``"auto"`` is ``"newton"``, the only solver for an l1 or elastic-net
        penalty.
    tol : float, default=1e-4
        The relative gap ``(J - J*) / J`` of the objective to stop at, an estimate.
    max_iter : int, default=1000
        The largest number of outer iterations.
    fit_intercept : bool, default=True
        Whether to fit an intercept. It is neither corrupted nor penalised.
    missing : {"error", "rescale", "conditional"}, default="error"
        What NaN in ``X`` means: an error, or a missing feature, also in training. A column that a data frame lacks is
        missing in every row. At prediction the score is, with ``"rescale"``,
        ``b + w.mu + 1 / share * sum_observed w_d (x_d - mu_d)``, where ``mu`` are the training means and ``share`` is
        the observed share of ``sum_d |w_d| sd_d``, at least half of that of the features; with ``"conditional"`` it is
        the expected score given the observed features, all being Gaussian with low-rank plus diagonal covariance.
    missing_rank : int or None, default=None
        Number of factors of that covariance. ``None`` chooses it by the likelihood of held-out rows.
    conformal : bool, default=False
        Whether `fit` learns from held-out rows what `predict_interval` needs: by five more fits, in a search by none.
    n_jobs : int or None, default=None
        Number of threads that share the rows, -1 for all cores. It does not change the result.
    verbose : int, default=0
        Whether to print a line per iteration to the standard error stream.
    warm_start : bool, default=False
        Whether to start from the coefficients of the last fit, if their shape is the same.
    epsilon : float, default=0.1
        Residuals of up to this size, in the units of ``y``, have no loss.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients. A CSR array of one row after `sparsify`.
    intercept_ : float
        The intercept.
    n_iter_ : int
        Number of outer iterations.
    n_passes_ : float
        Number of passes over the data. A product with ``X`` and one with its transpose are one pass.
    objective_ : float
        The objective at the solution.
    converged_ : bool
        Whether the solver reached ``tol``.
    history_ : list of Iteration
        Named tuples (iteration, objective, gap, passes, n_active), one per outer iteration.
    feature_means_, feature_deviations_ : ndarray of shape (n_features,)
        Mean and standard deviation of the observed entries of each feature, weighted by the sample weights. The
        deviations only with ``missing="rescale"``.
    feature_factors_, residual_variances_ : ndarray of shape (n_features, rank) and (n_features,)
        Only with ``missing="conditional"``: the covariance of the features is ``U U' + diag(residual_variances_)``.
    conformal_scores_, conformal_shares_ : ndarray of shape (n_levels, n_rows) and (n_levels,)
        Sorted errors of held-out rows for each share of missing features; only with ``conformal``.
    residual_deviation_ : float
        Standard deviation of the residuals of complete training rows, with the degrees of freedom that the coefficients
        leave, for `predict_interval`. Only if these are more than zero, and after a fit in memory.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, only if ``X`` has column names that are all strings.

    See Also
    --------
    DropoutSVRCV : Chooses noise and ``C`` by cross-validation.
    DropoutRidge : The quadratic loss.
    NoisyLinearRegressor : Any loss of regression.

    References
    ----------
    .. [1] N. Chen, J. Zhu, J. Chen and B. Zhang, "Dropout Training for Support Vector Machines", AAAI 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DropoutSVR(noise=0.1, epsilon=5.0).fit(scale(X), y)
    >>> model.score(scale(X), y) > 0.45
    True
    """

    def _make_loss(self) -> Loss:
        return EpsilonInsensitive(check_parameter(self, "epsilon"))

    def _scale_of_C(self, y: Array, sample_weight: Array) -> float:  # noqa: N802
        # With the targets s times as large, the coefficients are those for C s times as large.
        variance = np.average(np.square(y - np.average(y, weights=sample_weight)), weights=sample_weight)
        return super()._scale_of_C(y, sample_weight) * (float(np.sqrt(variance)) or 1.0)


class NoisyLinearRegressor(ApproximationParameter, MarginalisedRegressor):
    """Linear regressor for any pair of a loss and a noise.

    Minimises ``R(w) + C sum_i s_i phi(y_i; m_i, v_i)`` over the coefficients ``w`` and the intercept ``b``, where
    ``m_i = w.x_i + b`` is the mean and ``v_i`` the variance of the score of row ``i`` under the noise, ``s_i`` is its
    sample weight and ``R`` the penalty.

    Parameters
    ----------
    loss : str or Loss, default="huber"
        ``"huber"``, ``"quadratic"``, ``"epsilon-insensitive"``, or an object of `dropmargin.losses` that is a function
        of the residual, such as ``Huber(delta=10.0)``.
    noise : float, Noise or None, default=0.1
        The noise on the features. A number ``q`` in [0, 1) means ``DropoutNoise(rate=q)``; ``None`` means no noise.
    C : float, default=1.0
        Inverse strength of the penalty: ``C`` multiplies the loss, as in `sklearn.svm.LinearSVR`.
    l1_ratio : float, default=0.0
        The penalty is ``l1_ratio |w|_1 + (1 - l1_ratio) / 2 |w|_2^2``: 0 is l2, 1 is l1, and a number between them is
        the elastic net. The intercept is not penalised.
    solver : {"auto", "newton", "irls", "lbfgs"}, default="auto"
        ``"newton"``: iteratively reweighted least squares at first, then Newton steps; ``"irls"``: reweighted least
        squares alone; ``"lbfgs"``: L-BFGS. ``"auto"`` is ``"newton"``, the only solver for an l1 or elastic-net
        penalty.
    tol : float, default=1e-4
        The relative gap ``(J - J*) / J`` of the objective to stop at, an estimate.
    max_iter : int, default=1000
        The largest number of outer iterations.
    fit_intercept : bool, default=True
        Whether to fit an intercept. It is neither corrupted nor penalised.
    missing : {"error", "rescale", "conditional"}, default="error"
        What NaN in ``X`` means: an error, or a missing feature, also in training. A column that a data frame lacks is
        missing in every row. At prediction the score is, with ``"rescale"``,
        ``b + w.mu + 1 / share * sum_observed w_d (x_d - mu_d)``, where ``mu`` are the training means and ``share`` is
        the observed share of ``sum_d |w_d| sd_d``, at least half of that of the features; with ``"conditional"`` it is
        the expected score given the observed features, all being Gaussian with low-rank plus diagonal covariance.
    missing_rank : int or None, default=None
        Number of factors of that covariance. ``None`` chooses it by the likelihood of held-out rows.
    conformal : bool, default=False
        Whether `fit` learns from held-out rows what `predict_interval` needs: by five more fits, in a search by none.
    n_jobs : int or None, default=None
        Number of threads that share the rows, -1 for all cores. It does not change the result.
    verbose : int, default=0
        Whether to print a line per iteration to the standard error stream.
    warm_start : bool, default=False
        Whether to start from the coefficients of the last fit, if their shape is the same.
    approximation : {"bound", "gaussian"}, default="bound"
        How the expected loss is computed: an upper bound, or the expectation under a normally distributed score. Only
        the Huber loss has the second. The quadratic loss is exact.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients. A CSR array of one row after `sparsify`.
    intercept_ : float
        The intercept.
    n_iter_ : int
        Number of outer iterations.
    n_passes_ : float
        Number of passes over the data. A product with ``X`` and one with its transpose are one pass.
    objective_ : float
        The objective at the solution.
    converged_ : bool
        Whether the solver reached ``tol``.
    history_ : list of Iteration
        Named tuples (iteration, objective, gap, passes, n_active), one per outer iteration.
    feature_means_, feature_deviations_ : ndarray of shape (n_features,)
        Mean and standard deviation of the observed entries of each feature, weighted by the sample weights. The
        deviations only with ``missing="rescale"``.
    feature_factors_, residual_variances_ : ndarray of shape (n_features, rank) and (n_features,)
        Only with ``missing="conditional"``: the covariance of the features is ``U U' + diag(residual_variances_)``.
    conformal_scores_, conformal_shares_ : ndarray of shape (n_levels, n_rows) and (n_levels,)
        Sorted errors of held-out rows for each share of missing features; only with ``conformal``.
    residual_deviation_ : float
        Standard deviation of the residuals of complete training rows, with the degrees of freedom that the coefficients
        leave, for `predict_interval`. Only if these are more than zero, and after a fit in memory.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, only if ``X`` has column names that are all strings.

    See Also
    --------
    DropoutRidge : The quadratic loss.
    DropoutSVR : The epsilon-insensitive loss.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import NoisyLinearRegressor
    >>> from dropmargin.losses import Huber
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = NoisyLinearRegressor(Huber(delta=50.0), noise=0.1).fit(scale(X), y)
    >>> model.score(scale(X), y) > 0.45
    True
    """

    loss: Any = parameter(default="huber", kw_only=False)

    def _make_loss(self) -> Loss:
        loss = as_loss(self.loss, self.approximation, REGRESSION_LOSSES)
        if not loss.suits_regression:
            raise ValueError(
                f"loss must be a function of the residual, got {type(loss).__name__}, which is a loss of "
                f"classification; choose one of {sorted(REGRESSION_LOSSES)} or a loss object with suits_regression."
            )
        return loss
