"""Classifiers that choose their noise and their ``C`` by cross-validation: what differs is the plain classifier."""

from __future__ import annotations

from typing import Any

from dropmargin.estimators import DropoutLogisticRegression, DropoutSVC, NoisyLinearClassifier
from dropmargin.estimators.base import MarginalisedClassifier
from dropmargin.model_selection.base import MarginalisedClassifierCV

_PARAMETERS = """
    noises : int or list of float, Noise or None, default=10
        What to choose the noise from: dropout rates, noises of any kind, ``None`` for no noise. A number means that
        many dropout rates, evenly from 0 to 0.9.
    Cs : int or list of float, default=13
        What to choose ``C`` from. A number means that many values, on a logarithmic scale that suits the data.
    cv : int, splitter, iterable or None, default=None
        As in `sklearn.model_selection.GridSearchCV`; ``None`` means five stratified folds.
    scoring : str, callable or None, default=None
        The score to maximise: a name or a scorer of scikit-learn; ``None`` means accuracy.
    rule : {"best", "one-se"}, default="best"
        Take the highest mean score; or the smallest ``C`` whose score is within one standard error of it, and of that
        column of the grid the best. Of equal scores, the smallest ``C``, then the first noise.
    prune : bool, default=True
        Whether points that cannot win are solved roughly or interpolated between neighbours. What is chosen, and all
        that come close to it, are always solved to ``tol / 10``: their scores hardly depend on the way there."""
_SOLVING = """
    l1_ratio, solver, tol, max_iter, fit_intercept, multi_class, missing, class_weight
        As in `DropoutSVC`. ``class_weight="balanced"`` is balanced on each fold.
    store_coefs : bool or "auto", default="auto"
        Whether to keep the coefficients of every point on every fold: ``n_folds * n_noises * n_Cs`` times those of the
        model; ``"auto"`` keeps them up to 256 MB. Without them, a fit takes a little longer.
    n_jobs : int or None, default=None
        Threads that share the folds; it never changes the result.
    verbose : int, default=1
        0 for no progress bar. There is none anyway unless stderr is a terminal, or the program a notebook, and the
        work takes over two seconds.

    Attributes
    ----------
    C_ : float
    noise_ : Noise or None
        What was chosen.
    best_score_ : float
        Its mean score over the folds.
    best_index_ : tuple of int
        Its place in ``noises_`` and ``Cs_``.
    best_estimator_ : the plain classifier with that noise and that ``C``, fitted to all rows.
    coef_, intercept_, classes_, n_features_in_, feature_names_in_
        Its attributes.
    noises_ : tuple of Noise or None
    Cs_ : ndarray of shape (n_Cs,)
        In ascending order.
    scores_ : ndarray of shape (n_folds, n_noises, n_Cs)
    coefs_paths_ : ndarray of shape (n_folds, n_noises, n_Cs, n_columns, n_features + 1)
        The offset is last. Only if they are stored.
    n_iter_ : ndarray of shape (n_folds, n_noises, n_Cs)
    refined_ : bool ndarray of shape (n_noises, n_Cs)
        Which points were solved to ``tol / 10``; the others roughly, or, where ``n_iter_`` is 0, interpolated."""
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
class NoisyLinearClassifierCV(MarginalisedClassifierCV):
    """`NoisyLinearClassifier` with noise and ``C`` chosen by cross-validation, for any loss.

    Parameters
    ----------
    loss : str or Loss, default="hinge"
        As in `NoisyLinearClassifier`.
    <PARAMETERS>
    <APPROXIMATION>
    <SOLVING>
    """

    _plain_class = NoisyLinearClassifier

    def __init__(
        self,
        loss: Any = "hinge",
        *,
        noises: Any = 10,
        Cs: Any = 13,
        cv: Any = None,
        scoring: Any = None,
        rule: str = "best",
        prune: bool = True,
        l1_ratio: float = 0.0,
        approximation: str = "bound",
        solver: str = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        multi_class: str = "ovr",
        missing: str = "error",
        class_weight: Any = None,
        store_coefs: bool | str = "auto",
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> None:
        self.loss = loss
        self.noises = noises
        self.Cs = Cs
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.prune = prune
        self.l1_ratio = l1_ratio
        self.approximation = approximation
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.multi_class = multi_class
        self.missing = missing
        self.class_weight = class_weight
        self.store_coefs = store_coefs
        self.n_jobs = n_jobs
        self.verbose = verbose


@_document
class DropoutSVCCV(MarginalisedClassifierCV):
    """`DropoutSVC` with noise and ``C`` chosen by cross-validation.

    The grid is one walk, not as many fits: each point starts where its neighbours point, and only those that may win
    are solved to the full tolerance.

    Parameters
    ----------
    <PARAMETERS>
    <APPROXIMATION>
    <SOLVING>

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutSVCCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = DropoutSVCCV(noises=[0, 0.1, 0.5]).fit(scale(X), y)
    >>> model.best_score_ > 0.97
    True
    """

    _plain_class: type[MarginalisedClassifier] = DropoutSVC

    def __init__(
        self,
        *,
        noises: Any = 10,
        Cs: Any = 13,
        cv: Any = None,
        scoring: Any = None,
        rule: str = "best",
        prune: bool = True,
        l1_ratio: float = 0.0,
        approximation: str = "bound",
        solver: str = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        multi_class: str = "ovr",
        missing: str = "error",
        class_weight: Any = None,
        store_coefs: bool | str = "auto",
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> None:
        self.noises = noises
        self.Cs = Cs
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.prune = prune
        self.l1_ratio = l1_ratio
        self.approximation = approximation
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.multi_class = multi_class
        self.missing = missing
        self.class_weight = class_weight
        self.store_coefs = store_coefs
        self.n_jobs = n_jobs
        self.verbose = verbose


@_document
class DropoutLogisticRegressionCV(DropoutSVCCV):
    """`DropoutLogisticRegression` with noise and ``C`` chosen by cross-validation.

    Parameters
    ----------
    <PARAMETERS>
    <APPROXIMATION>
    <SOLVING>
    """

    _plain_class = DropoutLogisticRegression
