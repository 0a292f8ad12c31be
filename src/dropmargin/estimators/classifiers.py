"""The public classifiers: what differs between them is the loss and its parameters."""

from __future__ import annotations

from typing import Any

from dropmargin.estimators.online import OnlineMixin
from dropmargin.losses import Loss, as_loss

_PARAMETERS = """
    noise : float, Noise or None, default=0.1
        A number q in [0, 1) means ``DropoutNoise(rate=q)``; ``None`` means no noise.
    C : float, default=1.0
        Inverse strength of the penalty: it multiplies the loss, as in `sklearn.svm.LinearSVC`.
    l1_ratio : float, default=0.0
        The penalty is ``l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|_2^2``: 0 is l2, 1 is l1, and a number between them the
        elastic net. The intercept is not penalised."""
_SOLVING = """
    solver : {"auto", "newton", "irls", "lbfgs", "closed-form"}, default="auto"
        ``"newton"``: re-weighted least squares at first, then Newton steps; ``"irls"``: the paper's two steps;
        ``"lbfgs"``: the paper's numerical method; ``"closed-form"``: for the quadratic loss.
        ``"auto"`` is ``"newton"``, the only one for an l1 or elastic-net penalty.
    tol : float, default=1e-4
        The relative gap ``(J - J*) / J`` to stop at, as estimated (for the noise-free hinge: as proved).
    max_iter : int, default=1000
        Most outer iterations.
    fit_intercept : bool, default=True
        Whether to fit an offset, neither corrupted nor penalised.
    multi_class : {"ovr", "ovo"}, default="ovr"
        One column per class, all solved as one block, or one per pair of classes.
    missing : {"error", "rescale"}, default="error"
        What NaN means: an error, or a feature that is missing. In training a missing entry has neither mean nor
        variance. At prediction the score is ``b + w.mu + 1/share sum_observed w_d (x_d - mu_d)``, with ``mu`` the
        training mean and ``share`` what is observed of ``sum_d |w_d| sd_d``, at least half of the row's share of
        observed features; a row with nothing observed has ``b + w.mu``. A column that a data frame lacks is missing in
        every row.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights; ``"balanced"`` counts rows by their weight.
    warm_start : bool, default=False
        Start from the coefficients of the last fit, if their shape and the classes are the same.
    n_jobs : int or None, default=None
        Threads that share the rows (or the pairs); it never changes the result.
    verbose : int, default=0
        Whether to print a line per iteration to the standard error stream.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features), (n_classes, n_features) or (n_pairs, n_features)
    intercept_ : ndarray of shape (1,), (n_classes,) or (n_pairs,)
    classes_ : ndarray of shape (n_classes,)
    n_iter_ : int
        Outer iterations; the most of any column where columns are solved apart.
    n_passes_ : float
        Passes over the data: a product with X and one with its transpose are one pass. Summed over columns that are
        solved one by one (sparse X), and with a first fit to a sample of the rows in it, by its share.
    objective_ : float
        The objective at the solution, summed over the columns.
    converged_ : bool
    history_ : list of named tuples (iteration, objective, gap, passes, n_active)
    feature_means_, feature_deviations_ : ndarray of shape (n_features,)
        Mean and standard deviation of the observed entries of each feature, weighted as the fit weighs the rows; only
        with ``missing="rescale"``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had string column names."""
_APPROXIMATION = """
    approximation : {"bound", "gaussian"}, default="bound"
        The paper's upper bound on the expected loss, or the expectation under a normal score."""


def _document(cls: type) -> type:
    """Fill the shared sections into a class's docstring."""
    text = cls.__doc__ or ""
    for name, section in (("PARAMETERS", _PARAMETERS), ("SOLVING", _SOLVING), ("APPROXIMATION", _APPROXIMATION)):
        text = text.replace(f"\n    <{name}>", section)
    cls.__doc__ = text
    return cls


@_document
class NoisyLinearClassifier(OnlineMixin):
    """A linear classifier for any pair of loss and noise.

    Minimises ``R(w) + C sum_i s_i phi(y_i; m_i, v_i)``, where ``m_i`` and ``v_i`` are the mean and the variance of the
    score of row ``i`` under the noise.

    Parameters
    ----------
    loss : str or Loss, default="hinge"
        ``"hinge"``, ``"logistic"``, ``"quadratic"``, ``"exponential"``, ``"mcf-logistic"``, or an object of
        `dropmargin.losses`.
    <PARAMETERS>
    <APPROXIMATION>
    <SOLVING>
    """

    def __init__(
        self,
        loss: Any = "hinge",
        *,
        noise: Any = 0.1,
        C: float = 1.0,
        l1_ratio: float = 0.0,
        approximation: str = "bound",
        solver: str = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        multi_class: str = "ovr",
        missing: str = "error",
        class_weight: Any = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.noise = noise
        self.C = C
        self.l1_ratio = l1_ratio
        self.approximation = approximation
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.multi_class = multi_class
        self.missing = missing
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _make_loss(self) -> Loss:
        return as_loss(self.loss, self.approximation)


@_document
class DropoutSVC(OnlineMixin):
    """A linear support vector machine trained under noise on its features (Chen et al. 2014, Dropout-SVM).

    The expected hinge loss is bounded, in closed form, by ``(z + sqrt(z^2 + v)) / 2`` with ``z = 1 - y m``: nothing is
    sampled. With ``noise=None`` it is the ordinary SVM with an unpenalised offset.

    Parameters
    ----------
    <PARAMETERS>
    <APPROXIMATION>
    <SOLVING>

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> DropoutSVC(noise=0.5).fit(scale(X), y).score(scale(X), y) > 0.95
    True
    """

    def __init__(
        self,
        *,
        noise: Any = 0.1,
        C: float = 1.0,
        l1_ratio: float = 0.0,
        approximation: str = "bound",
        solver: str = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        multi_class: str = "ovr",
        missing: str = "error",
        class_weight: Any = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.noise = noise
        self.C = C
        self.l1_ratio = l1_ratio
        self.approximation = approximation
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.multi_class = multi_class
        self.missing = missing
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose

    _loss_name = "hinge"

    def _make_loss(self) -> Loss:
        return as_loss(self._loss_name, self.approximation)


@_document
class DropoutLogisticRegression(DropoutSVC):
    """Logistic regression trained under noise on its features (Chen et al. 2014, Dropout-Logistic).

    The expected logistic loss is bounded, in closed form, by ``log(2 cosh(r / 2)) - y m / 2`` with ``r^2 = m^2 + v``:
    nothing is sampled. With ``noise=None`` it is ordinary logistic regression.

    Parameters
    ----------
    <PARAMETERS>
    <APPROXIMATION>
    <SOLVING>
    """

    _loss_name = "logistic"


_MCF_LOSSES = {"quadratic": "quadratic", "exponential": "exponential", "logistic": "mcf-logistic"}


@_document
class MCFClassifier(OnlineMixin):
    """Marginalised corrupted features (van der Maaten et al. 2013), the baselines of the paper.

    Parameters
    ----------
    loss : {"quadratic", "exponential", "logistic"}, default="quadratic"
        The first two are exact expectations, the third is Jensen's bound through the noise's log-MGF.
    <PARAMETERS>
    <SOLVING>
    """

    def __init__(
        self,
        loss: str = "quadratic",
        *,
        noise: Any = 0.1,
        C: float = 1.0,
        l1_ratio: float = 0.0,
        solver: str = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        multi_class: str = "ovr",
        missing: str = "error",
        class_weight: Any = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.noise = noise
        self.C = C
        self.l1_ratio = l1_ratio
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.multi_class = multi_class
        self.missing = missing
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _make_loss(self) -> Loss:
        if not isinstance(self.loss, str) or self.loss not in _MCF_LOSSES:
            raise ValueError(f"loss of MCFClassifier must be one of {list(_MCF_LOSSES)}, got {self.loss!r}.")
        return as_loss(_MCF_LOSSES[self.loss])
