"""`partial_fit`: the same estimators on a stream of rows, each of which is read once."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from dropmargin.data import Rows, binary_outputs, canonical
from dropmargin.data.inputs import validate_rows
from dropmargin.data.missing_values import FeatureStatistics
from dropmargin.estimators import validation
from dropmargin.estimators.classification import MarginalisedClassifier
from dropmargin.estimators.fitting import problem_of, set_classes, set_result
from dropmargin.losses import MomentLoss
from dropmargin.online import Stream
from dropmargin.solvers import Result, no_monitor
from dropmargin.threads import one_blas_thread
from dropmargin.typing import Array

_SHOWN_LABELS = 5


def _check_stream(estimator: OnlineMixin) -> bool:
    """Return whether an estimator has `partial_fit`; if not, raise an error that says why."""
    loss, held_out = estimator._make_loss(), validation.holds_out(estimator)
    refusals = (
        (
            not isinstance(loss, MomentLoss),
            f"for {type(loss).__name__}, a loss through the moment generating function: partial_fit needs a loss of "
            "the mean and the variance of the score. Choose the hinge, logistic or quadratic loss",
        ),
        (
            estimator.l1_ratio != 0.0,
            f"with l1_ratio={estimator.l1_ratio!r}: the earlier rows are kept as a smooth quadratic function, in which "
            "an l1 penalty sets no coefficient to zero. Set l1_ratio=0",
        ),
        (
            estimator.missing != "error",
            f"with missing={estimator.missing!r}: missing values are treated by statistics of all training rows, which "
            "are not known before the end of a stream. Set missing='error' and impute the missing values of each batch "
            "(sklearn.impute.SimpleImputer)",
        ),
        (
            estimator.multi_class == "multinomial",
            "with multi_class='multinomial': the earlier rows are kept for each output alone, and a softmax couples "
            "the outputs. Set multi_class='ovr' or 'ovo'",
        ),
        (held_out is not None, f"with {held_out}, which needs all rows in memory to hold some out. Leave it out"),
    )
    for is_refused, reason in refusals:
        if is_refused:
            raise AttributeError(f"{type(estimator).__name__} has no partial_fit {reason}, or use fit.")
    return True


class OnlineMixin(MarginalisedClassifier):
    """Adds `partial_fit` to a classifier."""

    @available_if(_check_stream)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> OnlineMixin:
        """Update the model with a batch of rows, of which at most a sample is stored.

        After rows ``1..n`` the model approximates the minimum over all of them, ``R(w) + C sum_{i<=n} s_i phi_i``, the
        objective of `fit`. Up to 511 rows in all are solved as in `fit`. Of more rows, a quadratic approximation of
        their loss and a sample of up to 4,096 rows are kept (docs/large_data.md). The model can be used
        after every call. Batches of a thousand rows and more are the fastest. The classes may come in any order; with
        more features than the sample has rows, a stream sorted by class is less accurate, and there is a warning.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of the batch.
        y : array-like of shape (n_samples,)
            Labels, all among ``classes``. A batch need not have all of them.
        classes : array-like of shape (n_classes,), default=None
            All labels of the stream. Required in the first call, and the same if given again. After `fit`, and for a
            model from a file, ``None`` means the classes of the model, with a warning that the stream starts anew.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. A row of weight 2 counts as two rows, a row of weight 0 is left out. Weights that are
            all zero are an error. A batch whose rows all have a class of ``class_weight`` 0 does not change the
            coefficients.

        Returns
        -------
        self : object
            The estimator. If the call fails or is interrupted, the estimator is unchanged. `fit` starts anew, and so
            does the first `partial_fit` after `fit`. ``objective_`` is an estimate.

        Examples
        --------
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.preprocessing import scale
        >>> from dropmargin import DropoutSVC
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> X, model = scale(X), DropoutSVC(noise=0.1)
        >>> for begin in range(0, len(X), 200):
        ...     batch = slice(begin, begin + 200)
        ...     model = model.partial_fit(X[batch], y[batch], classes=[0, 1])
        >>> model.score(X, y) > 0.95
        True
        """
        with validation.unchanged_on_failure(self):
            return self._partial_fit(X, y, classes, sample_weight)

    def _partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> OnlineMixin:
        problem = problem_of(self)
        stream: Stream | None = getattr(self, "_stream", None)
        known = self._check_classes(classes, stream is None)
        X, y = validate_rows(self, X, y, reset=stream is None)
        names = getattr(self, "feature_names_in_", None)
        if problem.noise is not None:
            problem = replace(problem, noise=problem.noise.resolve(X.shape[1], names))
        X = validation.check_entries(canonical(X, is_sound=True), problem.noise, names)
        weights = validation.check_weights(sample_weight, X.shape[0])
        codes = _encode(y, known)
        weights = weights * _class_factors(self.class_weight, known)[codes]
        counted = weights > 0.0
        batch = Rows(X, codes, weights) if counted.all() else Rows(X, codes, weights).take(counted)
        problems = binary_outputs(len(known), self.multi_class)
        if stream is None:
            stream = Stream.start(X.shape[1], len(problems), len(known), problem.penalty.l2)
        elif len(stream.summaries) != len(problems):
            raise ValueError(f"multi_class must stay the same during a stream, got {self.multi_class!r}; call fit.")
        before = stream
        with one_blas_thread():
            stream = stream.after(batch, replace(problem, monitor=no_monitor), problems)
        if stream.has_small_sample and not before.has_small_sample:
            warnings.warn(
                f"The mix of the classes changes along the stream, as in rows sorted by class, and X has "
                f"{X.shape[1]} features, more than the stream keeps rows. The accuracy may be lower than that of fit: "
                "shuffle the rows of the stream, or use fit.",
                UserWarning,
                stacklevel=3,
            )
        n_iter, dtype = (self.n_iter_ + 1, self.coef_.dtype) if hasattr(self, "_stream") else (1, X.dtype)
        result = Result(stream.coef, stream.objective, n_iter, False, "", n_passes=stream.n_passes)
        set_result(self, result, dtype)
        set_classes(self, known, FeatureStatistics(stream.feature_means, None))
        self._stream = stream
        return self

    def _check_classes(self, classes: Any, is_new: bool) -> Array:
        """Return the sorted classes of the stream, which are declared in its first call."""
        known = getattr(self, "classes_", None)
        if classes is None:
            if known is None:
                raise ValueError(
                    f"classes must be passed on the first call to partial_fit of {type(self).__name__}: all labels "
                    "that the stream will have."
                )
            if is_new:
                warnings.warn(
                    f"partial_fit of {type(self).__name__} starts anew: a model of fit or of a file does not contain "
                    "its rows. Pass classes if this is intended.",
                    UserWarning,
                    stacklevel=5,
                )
            return known
        if is_new:
            check_classification_targets(classes)
        given = np.unique(np.asarray(classes))
        if not is_new and not np.array_equal(given, self.classes_):
            raise ValueError(
                f"classes={given.tolist()!r} is not the same as on the first call to partial_fit, "
                f"{self.classes_.tolist()!r}; new classes need a new stream."
            )
        if len(given) < 2:
            raise ValueError(f"classes must name at least 2 labels, got {given.tolist()!r}: there is nothing to learn.")
        return given


def _encode(y: Array, classes: Array) -> Array:
    """Return the index of each label among the classes."""
    positions = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    unknown = classes[positions] != y
    if unknown.any():
        check_classification_targets(y)
        labels = np.unique(y[unknown])
        more = "" if len(labels) <= _SHOWN_LABELS else f" and {len(labels) - _SHOWN_LABELS} more"
        raise ValueError(
            f"y has labels that are not among the declared classes {classes.tolist()!r}: "
            f"{labels[:_SHOWN_LABELS].tolist()!r}{more}. Declare every class in the first call to partial_fit."
        )
    return positions


def _class_factors(class_weight: Any, classes: Array) -> Array:
    """Return one factor per class; "balanced" is an error, as the class frequencies of a stream are not known."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        raise ValueError(
            "class_weight='balanced' is not supported for partial_fit: the shares of the classes are not known before "
            "the end of the stream. Estimate them from a sample, and pass class_weight as a dict or sample_weight."
        )
    return validation.class_factors(class_weight, classes, np.ones(len(classes)))
