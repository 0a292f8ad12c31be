"""`TableClassifier` and `TableRegressor`: from a raw data frame to a model that survives the loss of columns."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from dropmargin.estimators import DropoutLogisticRegression, DropoutRidge, DropoutSVC, DropoutSVR
from dropmargin.estimators.parameters import parameter, probability_method
from dropmargin.tables import effects
from dropmargin.tables.base import TableModel, check_rate
from dropmargin.typing import Array


def _has_probabilities(estimator: Any) -> bool:
    if estimator.loss != "logistic" and estimator.probability is None:
        raise AttributeError(
            f"predict_proba needs loss='logistic' or probability='sigmoid' before fit, got loss={estimator.loss!r}."
        )
    return True


class TableClassifier(ClassifierMixin, TableModel):
    """Classifier of the rows of a raw table, whose columns may be lost at prediction.

    Columns of numbers, categories, dates and text are found and encoded; the features of a column are one group, which
    dropout loses as a whole. Missing values need no imputation: the score of a row is the expected one given its
    observed columns. Basis, scaling, noise and ``C`` are chosen on held-out rows, as they are and with columns lost at
    random, of at most 1,500 of the rows; if basis, noise and ``C`` are given, there is no search.

    Parameters
    ----------
    loss : {"logistic", "hinge"}, default="logistic"
        The loss; with the hinge loss there are no probabilities, unless ``probability`` is set.
    basis : {"auto", "linear", "spline", "fourier"}, default="auto"
        ``"linear"``: one feature per number. ``"spline"``: an additive model of a smooth function of each number.
        ``"fourier"``: random Fourier features of all columns beside the splines, for columns that interact.
        ``"auto"`` chooses.
    noise : float, dict, "auto" or None, default="auto"
        The rate at which dropout loses a column in training: one number, or a dict of columns to rates (for the linear
        and the spline basis), ``None`` for no noise. The Fourier basis is trained on copies of the rows whose cells are
        deleted at rates up to 0.9, whatever the number; with ``None`` on the rows alone.
    C : float or None, default=None
        Inverse strength of the penalty; ``None`` chooses it. That of a Fourier basis is of its least squares, of
        classes as 0 and 1 or targets in units of their deviation.
    target_noise : float or None, default=0.3
        The share of columns that will be missing at prediction: candidates are compared on rows as they are and on rows
        that lose each column with this probability. 0 or ``None`` compares them on the rows as they are.
    text : list of str, default=()
        Columns of text, whose words are features.
    cv : int, splitter, iterable or None, default=None
        The folds, as in `sklearn.model_selection.GridSearchCV`; ``None`` holds out three tenths of the rows, or makes
        three folds of fewer than 150 rows.
    random_state : int, RandomState instance or None, default=None
        Seed of folds, copies and Fourier features.
    n_jobs : int or None, default=None
        Number of threads, -1 for all cores. It does not change the result.
    verbose : int, default=1
        0 for no progress bar. A bar is shown only on a terminal or in a notebook, after two seconds.
    encoder : transformer, default=None
        A `TableEncoder` with other parameters, or any transformer with ``get_feature_names_out`` in its place.
    groups : callable, default=None
        For an encoder of another package: a function from the name of a feature to the name of its column. By default
        it is the column whose name the feature's name starts with.
    conformal : bool, default=False
        Whether five more fits score held-out rows, for `predict_set`, without the Fourier basis.
    probability : {"sigmoid", "isotonic"} or None, default=None
        How `predict_proba` is calibrated on held-out rows, by the same fits; ``None``: scores of the logistic loss are
        log-odds.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    columns_ : list of Column
        Name, kind, number of features and, if it is left out, the reason, for each column of the training data.
    basis_, scaling_, noise_, C_ : str, str, float, float
        The chosen basis, scaling of the numbers, noise (``None`` for a Fourier basis) and ``C``.
    cv_scores_ : dict of str to float
        The score of each basis that was tried: the share of the variance of the targets, or of the classes as 0 and 1,
        that least squares explain on held-out rows; for tables with text or many columns that of the model.
    encoder_ : TableEncoder
        The fitted encoder.
    fourier_ : FourierFeatures or None
        The Fourier features of ``basis="fourier"``.
    model_ : DropoutLogisticRegression or DropoutSVC
        The linear model of the encoded features; for a Fourier basis, of the scores that ``fourier_`` returns.
    best_estimator_ : Pipeline
        These three as a pipeline.
    n_features_in_ : int
        Number of columns of the training data.
    feature_names_in_ : ndarray of str
        Their names, unless they were an array.

    See Also
    --------
    TableRegressor : The same for numbers.
    DropoutLogisticRegression : The linear model.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dropmargin import TableClassifier
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"age": rng.integers(20, 70, 200), "city": rng.choice(["Oslo", "Rome"], 200)})
    >>> bought = (np.abs(table.age - 45) < 12) | (table.city == "Rome")
    >>> model = TableClassifier(basis="spline", random_state=0).fit(table, bought)
    >>> model.score(table, bought) > 0.9
    True
    >>> model.predict(pd.DataFrame({"age": [44, None], "city": [None, "Rome"]}))
    array([ True,  True])
    """

    _losses: ClassVar = {"logistic": DropoutLogisticRegression, "hinge": DropoutSVC}
    loss: str = parameter(default="logistic", kw_only=False)
    probability: str | None = parameter(default=None, check=probability_method)

    def _check_targets(self, y: Any) -> Array:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if len(np.unique(y)) < 2:
            raise ValueError(f"y has one class, {y[:1].tolist()!r}: a classifier needs two classes at least.")
        return y

    @property
    def classes_(self) -> Array:
        """The class labels, sorted."""
        return self.model_.classes_

    def predict(self, X: Any) -> Array:
        """Return the predicted label of each row.

        Parameters
        ----------
        X : table
            Rows; a column that is absent, and NaN or None, are missing values.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Labels of ``classes_``.
        """
        features = self._features(X)
        return self.model_.predict(features)

    def decision_function(self, X: Any) -> Array:
        """Return the scores of rows.

        Parameters
        ----------
        X : table
            Rows; a column that is absent, and NaN or None, are missing values.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes one score per row, positive for ``classes_[1]``; for more, one per class.
        """
        features = self._features(X)
        return self.model_.decision_function(features)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, with ``loss="logistic"`` or ``probability``.

        Parameters
        ----------
        X : table
            Rows; a column that is absent, and NaN or None, are missing values.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            The probabilities.
        """
        features = self._features(X)
        return self.model_.predict_proba(features)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of the probability of each class, with ``loss="logistic"`` or ``probability``.

        Parameters
        ----------
        X : table
            Rows; a column that is absent, and NaN or None, are missing values.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            The logarithm of `predict_proba`.
        """
        features = self._features(X)
        return self.model_.predict_log_proba(features)

    def predict_set(self, X: Any, coverage: float = 0.9, *, allow_empty: bool = False) -> Array:
        """Return the labels that each row may have, with ``conformal=True``.

        Parameters
        ----------
        X : table
            Rows; a column that is absent, and NaN or None, are missing values.
        coverage : float, default=0.9
            The probability with which the set is to contain the label.
        allow_empty : bool, default=False
            Whether a set may be empty. Without it the predicted label is always in the set, and the coverage is above
            ``coverage`` where the accuracy is.

        Returns
        -------
        sets : ndarray of bool of shape (n_samples, n_classes)
            Whether each label of ``classes_`` is in the set.
        """
        features = self._features(X)
        return self.model_.predict_set(features, coverage, allow_empty=allow_empty)

    def predict_stability(
        self, X: Any, noise: float | None = None, *, n_draws: int = 128, random_state: Any = 0
    ) -> Array:
        """Return, for each row, the probability that its label stays the same if columns are lost.

        Each column that the row has is lost with probability ``noise``; it is the share of ``n_draws`` draws in which
        the label is still predicted.

        Parameters
        ----------
        X : table
            Rows, as for `predict`.
        noise : float, default=None
            The rate of loss; ``None`` for ``target_noise``.
        n_draws : int, default=128
            The number of draws.
        random_state : int, RandomState instance or None, default=0
            Seed of the draws.

        Returns
        -------
        probabilities : ndarray of shape (n_samples,)
            The probabilities, with a standard error of at most ``0.5 / sqrt(n_draws)``.
        """
        rate = check_rate("noise", self.target_noise if noise is None else noise)
        return effects.stability(self, X, rate, n_draws, random_state)


class TableRegressor(RegressorMixin, TableModel):
    """Regression of numbers on the rows of a raw table, whose columns may be lost at prediction.

    Columns of numbers, categories, dates and text are found and encoded; the features of a column are one group, which
    dropout loses as a whole. Missing values need no imputation: the prediction of a row is the expected one given its
    observed columns. Basis, scaling, noise and ``C`` are chosen on held-out rows, as they are and with columns lost at
    random, of at most 1,500 of the rows; if basis, noise and ``C`` are given, there is no search.

    Parameters
    ----------
    loss : {"squared", "epsilon_insensitive"}, default="squared"
        The loss: the squared error, or that of support vector regression, with a tenth of the standard deviation of
        the targets for ``epsilon``.
    basis : {"auto", "linear", "spline", "fourier"}, default="auto"
        ``"linear"``: one feature per number. ``"spline"``: an additive model of a smooth function of each number.
        ``"fourier"``: random Fourier features of all columns beside the splines, for columns that interact.
        ``"auto"`` chooses.
    noise : float, dict, "auto" or None, default="auto"
        The rate at which dropout loses a column in training: one number, or a dict of columns to rates (for the linear
        and the spline basis), ``None`` for no noise. The Fourier basis is trained on copies of the rows whose cells are
        deleted at rates up to 0.9, whatever the number; with ``None`` on the rows alone.
    C : float or None, default=None
        Inverse strength of the penalty; ``None`` chooses it. That of a Fourier basis is of its least squares, of
        classes as 0 and 1 or targets in units of their deviation.
    target_noise : float or None, default=0.3
        The share of columns that will be missing at prediction: candidates are compared on rows as they are and on rows
        that lose each column with this probability. 0 or ``None`` compares them on the rows as they are.
    text : list of str, default=()
        Columns of text, whose words are features.
    cv : int, splitter, iterable or None, default=None
        The folds, as in `sklearn.model_selection.GridSearchCV`; ``None`` holds out three tenths of the rows, or makes
        three folds of fewer than 150 rows.
    random_state : int, RandomState instance or None, default=None
        Seed of folds, copies and Fourier features.
    n_jobs : int or None, default=None
        Number of threads, -1 for all cores. It does not change the result.
    verbose : int, default=1
        0 for no progress bar. A bar is shown only on a terminal or in a notebook, after two seconds.
    encoder : transformer, default=None
        A `TableEncoder` with other parameters, or any transformer with ``get_feature_names_out`` in its place.
    groups : callable, default=None
        For an encoder of another package: a function from the name of a feature to the name of its column. By default
        it is the column whose name the feature's name starts with.
    conformal : bool, default=False
        Whether five more fits score held-out rows, for intervals that assume no normal law, without the Fourier basis.

    Attributes
    ----------
    columns_ : list of Column
        Name, kind, number of features and, if it is left out, the reason, for each column of the training data.
    basis_, scaling_, noise_, C_ : str, str, float, float
        The chosen basis, scaling of the numbers, noise (``None`` for a Fourier basis) and ``C``.
    cv_scores_ : dict of str to float
        The score of each basis that was tried: the share of the variance of the targets, or of the classes as 0 and 1,
        that least squares explain on held-out rows; for tables with text or many columns that of the model.
    encoder_ : TableEncoder
        The fitted encoder.
    fourier_ : FourierFeatures or None
        The Fourier features of ``basis="fourier"``.
    model_ : DropoutRidge or DropoutSVR
        The linear model of the encoded features; for a Fourier basis, of the scores that ``fourier_`` returns.
    best_estimator_ : Pipeline
        These three as a pipeline.
    n_features_in_ : int
        Number of columns of the training data.
    feature_names_in_ : ndarray of str
        Their names, unless they were an array.

    See Also
    --------
    TableClassifier : The same for classes.
    DropoutRidge : The linear model.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dropmargin import TableRegressor
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"size": rng.uniform(20, 120, 200), "city": rng.choice(["Oslo", "Rome"], 200)})
    >>> price = 10 * np.sqrt(table["size"]) + 30 * (table.city == "Oslo")
    >>> model = TableRegressor(basis="spline", random_state=0).fit(table, price)
    >>> model.score(table, price) > 0.9
    True
    >>> low, high = model.predict_interval(table.drop(columns="city").assign(city=None)).T
    >>> bool(np.mean((low <= price) & (price <= high)) > 0.8)
    True
    """

    _losses: ClassVar = {"squared": DropoutRidge, "epsilon_insensitive": DropoutSVR}
    loss: str = parameter(default="squared", kw_only=False)

    def _check_targets(self, y: Any) -> Array:
        y = column_or_1d(y, warn=True, dtype=np.float64)
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity: leave out these rows.")
        return y

    def predict(self, X: Any) -> Array:
        """Return the predicted number of each row.

        Parameters
        ----------
        X : table
            Rows; a column that is absent, and NaN or None, are missing values.

        Returns
        -------
        predictions : ndarray of shape (n_samples,)
            The predicted numbers.
        """
        features = self._features(X)
        return self.model_.predict(features)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Return an interval for the number of each row, which is wider if columns are missing.

        Parameters
        ----------
        X : table
            Rows; a column that is absent, and NaN or None, are missing values.
        coverage : float, default=0.9
            The probability with which the interval is to contain the number.

        Returns
        -------
        intervals : ndarray of shape (n_samples, 2)
            Lower and upper ends. The number is taken as normal: its variance is that of the residuals of complete rows
            and that of the prediction of the complete row given the observed columns.
        """
        if not (isinstance(coverage, Real) and 0.0 < coverage < 1.0):
            raise ValueError(f"coverage must be a number in (0, 1), such as 0.9, got {coverage!r}.")
        features = self._features(X)
        if self.fourier_ is None:
            return self.model_.predict_interval(features, coverage)
        means, deviations = self.model_.predict(features), effects.drawn_deviations(self, X)
        half = ndtri(0.5 + 0.5 * coverage) * np.hypot(deviations, self.model_.residual_deviation_)
        return np.column_stack([means - half, means + half])
