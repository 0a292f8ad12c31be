"""The public classifiers. They differ in their loss and its parameters."""

from __future__ import annotations

from dropmargin.estimators.online import OnlineMixin
from dropmargin.estimators.parameters import ApproximationParameter, LossParameter, check_parameter, parameter
from dropmargin.losses import Loss, as_loss


class DropoutSVC(ApproximationParameter, OnlineMixin):
    """Linear support vector machine trained under noise on its features (Dropout-SVM).

    Minimises ``R(w) + C sum_i s_i phi(y_i; m_i, v_i)`` over the coefficients ``w`` and the intercept ``b``, where
    ``m_i = w.x_i + b`` is the mean and ``v_i`` the variance of the score of row ``i`` under the noise, ``s_i`` is its
    sample weight and ``R`` the penalty. The loss is an upper bound on the expected hinge loss in closed form [1]_,
    ``phi = (z + sqrt(z^2 + v)) / 2`` with ``z = 1 - y m``. No corrupted rows are sampled. With ``noise=None`` it is the
    ordinary support vector machine with an unpenalised intercept.

    Parameters
    ----------
    noise : float, Noise or None, default=0.1
        The noise on the features. A number ``q`` in [0, 1) means ``DropoutNoise(rate=q)``; ``None`` means no noise.
    C : float, default=1.0
        Inverse strength of the penalty: ``C`` multiplies the loss, as in `sklearn.svm.LinearSVC`.
    l1_ratio : float, default=0.0
        The penalty is ``l1_ratio |w|_1 + (1 - l1_ratio) / 2 |w|_2^2``: 0 is l2, 1 is l1, and a number between them is
        the elastic net. The intercept is not penalised.
    solver : {"auto", "newton", "irls", "lbfgs"}, default="auto"
        ``"newton"``: iteratively reweighted least squares at first, then Newton steps; ``"irls"``: the algorithm of the
        paper; ``"lbfgs"``: L-BFGS. ``"auto"`` is
        ``"newton"``, the only solver for an l1 or elastic-net penalty.
    tol : float, default=1e-4
        The relative gap ``(J - J*) / J`` of the objective to stop at: an estimate or, for the hinge loss without noise,
        a bound from the dual.
    max_iter : int, default=1000
        The largest number of outer iterations.
    fit_intercept : bool, default=True
        Whether to fit an intercept. It is neither corrupted nor penalised.
    multi_class : {"ovr", "ovo"}, default="ovr"
        Strategy for more than two classes: one output per class against the rest, or one per pair of classes.
    missing : {"error", "rescale", "conditional"}, default="error"
        What NaN in ``X`` means: an error, or a missing feature, also in training. A column that a data frame lacks is
        missing in every row. At prediction the score is, with ``"rescale"``,
        ``b + w.mu + 1 / share * sum_observed w_d (x_d - mu_d)``, where ``mu`` are the training means and ``share`` is
        the observed share of ``sum_d |w_d| sd_d``, at least half of that of the features; with ``"conditional"`` it is
        the expected score given the observed features, all being Gaussian with low-rank plus diagonal covariance.
    missing_rank : int or None, default=None
        Number of factors of that covariance. ``None`` chooses it by the likelihood of held-out rows.
    conformal : bool, default=False
        Whether `fit` learns from held-out rows what `predict_set` needs: by five more fits, in a search by none.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights by class. ``"balanced"`` gives all classes the same total weight.
    probability : {"sigmoid", "isotonic"} or None, default=None
        How `predict_proba` is calibrated on held-out rows, by five more fits, in a search by none.
        ``None``: there is no `predict_proba`.
    n_jobs : int or None, default=None
        Number of threads that share the rows (or the pairs of classes), -1 for all cores. It does not change the
        result.
    verbose : int, default=0
        Whether to print a line per iteration to the standard error stream.
    warm_start : bool, default=False
        Whether to start from the coefficients of the last fit, if their shape and the classes are the same.
    approximation : {"bound", "gaussian"}, default="bound"
        How the expected loss is computed: the upper bound of the paper, or the expectation under a normally distributed
        score.

    Attributes
    ----------
    coef_ : ndarray of shape (n_outputs, n_features)
        Coefficients. There is one output for two classes; for more, one per class, or one per pair of classes with
        ``multi_class="ovo"``. A CSR array after `sparsify`.
    intercept_ : ndarray of shape (n_outputs,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    n_iter_ : int
        Number of outer iterations; the largest of any output where outputs are solved separately.
    n_passes_ : float
        Number of passes over the data. A product with ``X`` and one with its transpose are one pass. Passes are summed
        over outputs that are solved separately, and include those over a subsample by its share of the rows.
    objective_ : float
        The objective at the solution, summed over the outputs.
    converged_ : bool
        Whether the solver reached ``tol``.
    history_ : list of Iteration
        Named tuples (iteration, objective, gap, passes, n_active), one per outer iteration, summed over the outputs.
    feature_means_, feature_deviations_ : ndarray of shape (n_features,)
        Mean and standard deviation of the observed entries of each feature, weighted by the sample and class weights.
        The deviations only with ``missing="rescale"``.
    feature_factors_, residual_variances_ : ndarray of shape (n_features, rank) and (n_features,)
        Only with ``missing="conditional"``: the covariance of the features is ``U U' + diag(residual_variances_)``.
    calibration_, calibration_variance_ : ndarray of shape (n_classes, 2), float
        Slope and intercept of each score, and the factor of its variance; with ``probability`` or ``conformal``.
    isotonic_ : ndarray of shape (n_classes + 1, n_points)
        Probabilities, and what the isotonic regressions make of them; only with ``probability="isotonic"``.
    conformal_scores_, conformal_shares_ : ndarray of shape (n_levels, n_rows) and (n_levels,)
        Sorted errors of held-out rows for each share of missing features; only with ``conformal``.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, only if ``X`` has column names that are all strings.

    See Also
    --------
    DropoutSVCCV : Chooses noise and ``C`` by cross-validation.
    DropoutLogisticRegression : The logistic loss, with probabilities.
    NoisyLinearClassifier : Any loss.

    References
    ----------
    .. [1] N. Chen, J. Zhu, J. Chen and B. Zhang, "Dropout Training for Support Vector Machines", AAAI 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = DropoutSVC(noise=0.5).fit(scale(X), y)
    >>> model.score(scale(X), y) > 0.95
    True
    """

    def _make_loss(self) -> Loss:
        return as_loss("hinge", self.approximation)


class DropoutLogisticRegression(ApproximationParameter, OnlineMixin):
    """Logistic regression trained under noise on its features (Dropout-Logistic).

    Minimises ``R(w) + C sum_i s_i phi(y_i; m_i, v_i)`` over the coefficients ``w`` and the intercept ``b``, where
    ``m_i = w.x_i + b`` is the mean and ``v_i`` the variance of the score of row ``i`` under the noise, ``s_i`` is its
    sample weight and ``R`` the penalty. The loss is an upper bound on the expected logistic loss in closed form [1]_,
    ``phi = log(2 cosh(r / 2)) - y m / 2`` with ``r^2 = m^2 + v``. No corrupted rows are sampled. With ``noise=None`` it
    is ordinary logistic regression.

    Parameters
    ----------
    noise : float, Noise or None, default=0.1
        The noise on the features. A number ``q`` in [0, 1) means ``DropoutNoise(rate=q)``; ``None`` means no noise.
    C : float, default=1.0
        Inverse strength of the penalty: ``C`` multiplies the loss, as in `sklearn.svm.LinearSVC`.
    l1_ratio : float, default=0.0
        The penalty is ``l1_ratio |w|_1 + (1 - l1_ratio) / 2 |w|_2^2``: 0 is l2, 1 is l1, and a number between them is
        the elastic net. The intercept is not penalised.
    solver : {"auto", "newton", "irls", "lbfgs"}, default="auto"
        ``"newton"``: iteratively reweighted least squares at first, then Newton steps; ``"irls"``: the algorithm of the
        paper; ``"lbfgs"``: L-BFGS. ``"auto"`` is
        ``"newton"``, the only solver for an l1 or elastic-net penalty.
    tol : float, default=1e-4
        The relative gap ``(J - J*) / J`` of the objective to stop at: an estimate or, for the hinge loss without noise,
        a bound from the dual.
    max_iter : int, default=1000
        The largest number of outer iterations.
    fit_intercept : bool, default=True
        Whether to fit an intercept. It is neither corrupted nor penalised.
    multi_class : {"ovr", "ovo", "multinomial"}, default="ovr"
        Strategy for more than two classes: one output per class against the rest, one per pair of classes, or one
        softmax over all classes: ``phi = log sum_k exp(m_ik - m_iy + v_iky / 2)``, with the variance ``v_iky`` of the
        score along ``w_k - w_y``. Two classes are one binary problem in each case.
    missing : {"error", "rescale", "conditional"}, default="error"
        What NaN in ``X`` means: an error, or a missing feature, also in training. A column that a data frame lacks is
        missing in every row. At prediction the score is, with ``"rescale"``,
        ``b + w.mu + 1 / share * sum_observed w_d (x_d - mu_d)``, where ``mu`` are the training means and ``share`` is
        the observed share of ``sum_d |w_d| sd_d``, at least half of that of the features; with ``"conditional"`` it is
        the expected score given the observed features, all being Gaussian with low-rank plus diagonal covariance.
    missing_rank : int or None, default=None
        Number of factors of that covariance. ``None`` chooses it by the likelihood of held-out rows.
    conformal : bool, default=False
        Whether `fit` learns from held-out rows what `predict_set` needs: by five more fits, in a search by none.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights by class. ``"balanced"`` gives all classes the same total weight.
    probability : {"sigmoid", "isotonic"} or None, default=None
        How `predict_proba` is calibrated on held-out rows, by five more fits, in a search by none.
        ``None``: scores are log-odds.
    n_jobs : int or None, default=None
        Number of threads that share the rows (or the pairs of classes), -1 for all cores. It does not change the
        result.
    verbose : int, default=0
        Whether to print a line per iteration to the standard error stream.
    warm_start : bool, default=False
        Whether to start from the coefficients of the last fit, if their shape and the classes are the same.
    approximation : {"bound", "gaussian"}, default="bound"
        How the expected loss is computed: the upper bound of the paper, or the expectation under a normally distributed
        score.

    Attributes
    ----------
    coef_ : ndarray of shape (n_outputs, n_features)
        Coefficients. There is one output for two classes; for more, one per class, or one per pair of classes with
        ``multi_class="ovo"``. A CSR array after `sparsify`.
    intercept_ : ndarray of shape (n_outputs,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    n_iter_ : int
        Number of outer iterations; the largest of any output where outputs are solved separately.
    n_passes_ : float
        Number of passes over the data. A product with ``X`` and one with its transpose are one pass. Passes are summed
        over outputs that are solved separately, and include those over a subsample by its share of the rows.
    objective_ : float
        The objective at the solution, summed over the outputs.
    converged_ : bool
        Whether the solver reached ``tol``.
    history_ : list of Iteration
        Named tuples (iteration, objective, gap, passes, n_active), one per outer iteration, summed over the outputs.
    feature_means_, feature_deviations_ : ndarray of shape (n_features,)
        Mean and standard deviation of the observed entries of each feature, weighted by the sample and class weights.
        The deviations only with ``missing="rescale"``.
    feature_factors_, residual_variances_ : ndarray of shape (n_features, rank) and (n_features,)
        Only with ``missing="conditional"``: the covariance of the features is ``U U' + diag(residual_variances_)``.
    calibration_, calibration_variance_ : ndarray of shape (n_classes, 2), float
        Slope and intercept of each score, and the factor of its variance; with ``probability`` or ``conformal``.
    isotonic_ : ndarray of shape (n_classes + 1, n_points)
        Probabilities, and what the isotonic regressions make of them; only with ``probability="isotonic"``.
    conformal_scores_, conformal_shares_ : ndarray of shape (n_levels, n_rows) and (n_levels,)
        Sorted errors of held-out rows for each share of missing features; only with ``conformal``.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, only if ``X`` has column names that are all strings.

    See Also
    --------
    DropoutLogisticRegressionCV : Chooses noise and ``C`` by cross-validation.
    DropoutSVC : The hinge loss.
    NoisyLinearClassifier : Any loss.

    References
    ----------
    .. [1] N. Chen, J. Zhu, J. Chen and B. Zhang, "Dropout Training for Support Vector Machines", AAAI 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DropoutLogisticRegression(noise=0.1, C=10.0).fit(scale(X), y)
    >>> model.predict_proba(scale(X)[:2]).round(2)
    array([[0.9 , 0.1 , 0.  ],
           [0.76, 0.24, 0.  ]])
    """

    def _make_loss(self) -> Loss:
        return as_loss("logistic", self.approximation)


class NoisyLinearClassifier(LossParameter, ApproximationParameter, OnlineMixin):
    """Linear classifier for any pair of a loss and a noise.

    Minimises ``R(w) + C sum_i s_i phi(y_i; m_i, v_i)`` over the coefficients ``w`` and the intercept ``b``, where
    ``m_i = w.x_i + b`` is the mean and ``v_i`` the variance of the score of row ``i`` under the noise, ``s_i`` is its
    sample weight and ``R`` the penalty. For a loss through the moment generating function [2]_, ``phi`` is a function
    of ``K_i = log E exp(-y_i s(x~_i))`` instead, where ``s(x~_i)`` is the score of the corrupted row.

    Parameters
    ----------
    loss : str or Loss, default="hinge"
        ``"hinge"``, ``"logistic"`` [1]_, ``"quadratic"``, ``"exponential"``, ``"mcf-logistic"`` [2]_, or an object of
        `dropmargin.losses`.
    noise : float, Noise or None, default=0.1
        The noise on the features. A number ``q`` in [0, 1) means ``DropoutNoise(rate=q)``; ``None`` means no noise.
    C : float, default=1.0
        Inverse strength of the penalty: ``C`` multiplies the loss, as in `sklearn.svm.LinearSVC`.
    l1_ratio : float, default=0.0
        The penalty is ``l1_ratio |w|_1 + (1 - l1_ratio) / 2 |w|_2^2``: 0 is l2, 1 is l1, and a number between them is
        the elastic net. The intercept is not penalised.
    solver : {"auto", "newton", "irls", "lbfgs"}, default="auto"
        ``"newton"``: iteratively reweighted least squares at first, then Newton steps; ``"irls"``: the algorithm of the
        paper; ``"lbfgs"``: L-BFGS. ``"auto"`` is
        ``"newton"``, the only solver for an l1 or elastic-net penalty.
    tol : float, default=1e-4
        The relative gap ``(J - J*) / J`` of the objective to stop at: an estimate or, for the hinge loss without noise,
        a bound from the dual.
    max_iter : int, default=1000
        The largest number of outer iterations.
    fit_intercept : bool, default=True
        Whether to fit an intercept. It is neither corrupted nor penalised.
    multi_class : {"ovr", "ovo", "multinomial"}, default="ovr"
        Strategy for more than two classes: one output per class against the rest, one per pair of classes, or, for the
        logistic losses, one softmax over all classes, as in `DropoutLogisticRegression` and `MCFClassifier`.
    missing : {"error", "rescale", "conditional"}, default="error"
        What NaN in ``X`` means: an error, or a missing feature, also in training. A column that a data frame lacks is
        missing in every row. At prediction the score is, with ``"rescale"``,
        ``b + w.mu + 1 / share * sum_observed w_d (x_d - mu_d)``, where ``mu`` are the training means and ``share`` is
        the observed share of ``sum_d |w_d| sd_d``, at least half of that of the features; with ``"conditional"`` it is
        the expected score given the observed features, all being Gaussian with low-rank plus diagonal covariance.
    missing_rank : int or None, default=None
        Number of factors of that covariance. ``None`` chooses it by the likelihood of held-out rows.
    conformal : bool, default=False
        Whether `fit` learns from held-out rows what `predict_set` needs: by five more fits, in a search by none.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights by class. ``"balanced"`` gives all classes the same total weight.
    probability : {"sigmoid", "isotonic"} or None, default=None
        How `predict_proba` is calibrated on held-out rows, by five more fits, in a search by none.
        ``None``: scores are log-odds with a logistic loss; there is no `predict_proba` with others.
    n_jobs : int or None, default=None
        Number of threads that share the rows (or the pairs of classes), -1 for all cores. It does not change the
        result.
    verbose : int, default=0
        Whether to print a line per iteration to the standard error stream.
    warm_start : bool, default=False
        Whether to start from the coefficients of the last fit, if their shape and the classes are the same.
    approximation : {"bound", "gaussian"}, default="bound"
        How the expected loss is computed: the upper bound of the paper, or the expectation under a normally distributed
        score. Only the hinge and the logistic loss have the second.

    Attributes
    ----------
    coef_ : ndarray of shape (n_outputs, n_features)
        Coefficients. There is one output for two classes; for more, one per class, or one per pair of classes with
        ``multi_class="ovo"``. A CSR array after `sparsify`.
    intercept_ : ndarray of shape (n_outputs,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    n_iter_ : int
        Number of outer iterations; the largest of any output where outputs are solved separately.
    n_passes_ : float
        Number of passes over the data. A product with ``X`` and one with its transpose are one pass. Passes are summed
        over outputs that are solved separately, and include those over a subsample by its share of the rows.
    objective_ : float
        The objective at the solution, summed over the outputs.
    converged_ : bool
        Whether the solver reached ``tol``.
    history_ : list of Iteration
        Named tuples (iteration, objective, gap, passes, n_active), one per outer iteration, summed over the outputs.
    feature_means_, feature_deviations_ : ndarray of shape (n_features,)
        Mean and standard deviation of the observed entries of each feature, weighted by the sample and class weights.
        The deviations only with ``missing="rescale"``.
    feature_factors_, residual_variances_ : ndarray of shape (n_features, rank) and (n_features,)
        Only with ``missing="conditional"``: the covariance of the features is ``U U' + diag(residual_variances_)``.
    calibration_, calibration_variance_ : ndarray of shape (n_classes, 2), float
        Slope and intercept of each score, and the factor of its variance; with ``probability`` or ``conformal``.
    isotonic_ : ndarray of shape (n_classes + 1, n_points)
        Probabilities, and what the isotonic regressions make of them; only with ``probability="isotonic"``.
    conformal_scores_, conformal_shares_ : ndarray of shape (n_levels, n_rows) and (n_levels,)
        Sorted errors of held-out rows for each share of missing features; only with ``conformal``.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, only if ``X`` has column names that are all strings.

    See Also
    --------
    NoisyLinearClassifierCV : Chooses noise and ``C`` by cross-validation.
    DropoutSVC : The hinge loss.
    DropoutLogisticRegression : The logistic loss.
    MCFClassifier : The losses of [2]_.

    References
    ----------
    .. [1] N. Chen, J. Zhu, J. Chen and B. Zhang, "Dropout Training for Support Vector Machines", AAAI 2014.
    .. [2] L. van der Maaten, M. Chen, S. Tyree and K. Q. Weinberger, "Learning with Marginalized Corrupted Features",
           ICML 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import GaussianNoise, NoisyLinearClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = NoisyLinearClassifier("quadratic", noise=GaussianNoise(scale=0.5)).fit(scale(X), y)
    >>> model.score(scale(X), y) > 0.95
    True
    """

    def _make_loss(self) -> Loss:
        return as_loss(self.loss, self.approximation)


#: The name of a loss in `MCFClassifier` -> its name in `dropmargin.losses`.
_MCF_LOSSES = {"quadratic": "quadratic", "exponential": "exponential", "logistic": "mcf-logistic"}


class MCFClassifier(OnlineMixin):
    """Linear classifier with marginalised corrupted features (MCF).

    Minimises ``R(w) + C sum_i s_i E[phi(y_i s(x~_i))]`` over the coefficients ``w`` and the intercept ``b``, where
    ``s(x~_i) = w.x~_i + b`` is the score of the corrupted row, ``s_i`` is the sample weight and ``R`` the penalty
    [1]_.

    Parameters
    ----------
    loss : {"quadratic", "exponential", "logistic"}, default="quadratic"
        For the first two the expectation is exact; for the logistic loss it is Jensen's upper bound through the moment
        generating function of the noise. The last two need a noise with `log_mgf`.
    noise : float, Noise or None, default=0.1
        The noise on the features. A number ``q`` in [0, 1) means ``DropoutNoise(rate=q)``; ``None`` means no noise.
    C : float, default=1.0
        Inverse strength of the penalty: ``C`` multiplies the loss, as in `sklearn.svm.LinearSVC`.
    l1_ratio : float, default=0.0
        The penalty is ``l1_ratio |w|_1 + (1 - l1_ratio) / 2 |w|_2^2``: 0 is l2, 1 is l1, and a number between them is
        the elastic net. The intercept is not penalised.
    solver : {"auto", "newton", "irls", "lbfgs"}, default="auto"
        ``"newton"``: iteratively reweighted least squares at first, then Newton steps; ``"irls"``: the algorithm of the
        paper; ``"lbfgs"``: L-BFGS. ``"auto"`` is
        ``"newton"``, the only solver for an l1 or elastic-net penalty.
    tol : float, default=1e-4
        The relative gap ``(J - J*) / J`` of the objective to stop at: an estimate or, for the hinge loss without noise,
        a bound from the dual.
    max_iter : int, default=1000
        The largest number of outer iterations.
    fit_intercept : bool, default=True
        Whether to fit an intercept. It is neither corrupted nor penalised.
    multi_class : {"ovr", "ovo", "multinomial"}, default="ovr"
        Strategy for more than two classes: one output per class against the rest, one per pair of classes, or, for the
        logistic loss, one softmax over all classes: ``phi = log sum_k E exp(s_k(x~_i) - s_y(x~_i))``.
    missing : {"error", "rescale", "conditional"}, default="error"
        What NaN in ``X`` means: an error, or a missing feature, also in training. A column that a data frame lacks is
        missing in every row. At prediction the score is, with ``"rescale"``,
        ``b + w.mu + 1 / share * sum_observed w_d (x_d - mu_d)``, where ``mu`` are the training means and ``share`` is
        the observed share of ``sum_d |w_d| sd_d``, at least half of that of the features; with ``"conditional"`` it is
        the expected score given the observed features, all being Gaussian with low-rank plus diagonal covariance.
    missing_rank : int or None, default=None
        Number of factors of that covariance. ``None`` chooses it by the likelihood of held-out rows.
    conformal : bool, default=False
        Whether `fit` learns from held-out rows what `predict_set` needs: by five more fits, in a search by none.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights by class. ``"balanced"`` gives all classes the same total weight.
    probability : {"sigmoid", "isotonic"} or None, default=None
        How `predict_proba` is calibrated on held-out rows, by five more fits, in a search by none.
        ``None``: scores are log-odds with a logistic loss; there is no `predict_proba` with others.
    n_jobs : int or None, default=None
        Number of threads that share the rows (or the pairs of classes), -1 for all cores. It does not change the
        result.
    verbose : int, default=0
        Whether to print a line per iteration to the standard error stream.
    warm_start : bool, default=False
        Whether to start from the coefficients of the last fit, if their shape and the classes are the same.

    Attributes
    ----------
    coef_ : ndarray of shape (n_outputs, n_features)
        Coefficients. There is one output for two classes; for more, one per class, or one per pair of classes with
        ``multi_class="ovo"``. A CSR array after `sparsify`.
    intercept_ : ndarray of shape (n_outputs,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    n_iter_ : int
        Number of outer iterations; the largest of any output where outputs are solved separately.
    n_passes_ : float
        Number of passes over the data. A product with ``X`` and one with its transpose are one pass. Passes are summed
        over outputs that are solved separately, and include those over a subsample by its share of the rows.
    objective_ : float
        The objective at the solution, summed over the outputs.
    converged_ : bool
        Whether the solver reached ``tol``.
    history_ : list of Iteration
        Named tuples (iteration, objective, gap, passes, n_active), one per outer iteration, summed over the outputs.
    feature_means_, feature_deviations_ : ndarray of shape (n_features,)
        Mean and standard deviation of the observed entries of each feature, weighted by the sample and class weights.
        The deviations only with ``missing="rescale"``.
    feature_factors_, residual_variances_ : ndarray of shape (n_features, rank) and (n_features,)
        Only with ``missing="conditional"``: the covariance of the features is ``U U' + diag(residual_variances_)``.
    calibration_, calibration_variance_ : ndarray of shape (n_classes, 2), float
        Slope and intercept of each score, and the factor of its variance; with ``probability`` or ``conformal``.
    isotonic_ : ndarray of shape (n_classes + 1, n_points)
        Probabilities, and what the isotonic regressions make of them; only with ``probability="isotonic"``.
    conformal_scores_, conformal_shares_ : ndarray of shape (n_levels, n_rows) and (n_levels,)
        Sorted errors of held-out rows for each share of missing features; only with ``conformal``.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, only if ``X`` has column names that are all strings.

    See Also
    --------
    DropoutSVC : The hinge loss.
    DropoutLogisticRegression : The logistic loss, with a tighter bound.
    NoisyLinearClassifier : Any loss.

    References
    ----------
    .. [1] L. van der Maaten, M. Chen, S. Tyree and K. Q. Weinberger, "Learning with Marginalized Corrupted Features",
           ICML 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import MCFClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MCFClassifier("quadratic", noise=0.5).fit(scale(X), y)
    >>> model.score(scale(X), y) > 0.9
    True
    """

    loss: str = parameter(default="quadratic", choices=tuple(_MCF_LOSSES), kw_only=False)

    def _make_loss(self) -> Loss:
        return as_loss(_MCF_LOSSES[check_parameter(self, "loss")])
