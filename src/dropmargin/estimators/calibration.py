"""Calibrated probabilities of the classes, also of rows with missing features (``probability``).

The scores ``m_k`` of held-out rows, one per class, and their variances ``v_k`` given the observed features give the
probabilities::

    p = softmax(z),      z_k = (slope m_k + intercept_k) / sqrt(1 + factor v_k)

The slope, the intercepts and the factor minimise the logistic loss over held-out rows, complete and with missing
features. For two classes, one of which has the score 0, and complete rows, it is Platt's sigmoid with his smoothed
targets. A normal score with the variance ``v`` has the expected sigmoid ``expit(m / sqrt(1 + pi / 8 v))`` to a close
approximation (MacKay 1992); the factor is learnt, as the variance is that of a Gaussian model of the features.
``"isotonic"`` adds an isotonic regression of each class on its probability ``p_k``; their results are divided by their
sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.isotonic import IsotonicRegression

from dropmargin.typing import Array

#: The fitted attributes.
ATTRIBUTES = ("calibration_", "calibration_variance_", "isotonic_")


def fit(model: Any, mean: Array, variance: Array, y: Array) -> None:
    """Set the fitted attributes of a classifier.

    Parameters
    ----------
    model : MarginalisedClassifier
    mean, variance : ndarray of shape (n_levels, n_rows, n_outputs)
        Moments of the scores of held-out rows.
    y : ndarray of shape (n_rows,)
        The index of the class of each row.
    """
    n_levels, n_classes = len(mean), len(model.classes_)
    # Platt's targets: as if there were one more row of each class among the others.
    others = 1.0 / (np.bincount(y, minlength=n_classes) + 2.0)
    targets = np.eye(n_classes)[y]
    targets = targets * (1.0 - others[y])[:, None] + (1.0 - targets) * (others[y] / (n_classes - 1))[:, None]
    targets = np.tile(targets, (n_levels, 1))
    mean, variance = (own.reshape(-1, own.shape[-1]) for own in (mean, variance))
    scale = float(np.std(mean)) or 1.0
    m, v = _of_classes(mean / scale), _of_classes(variance / scale**2)

    def loss(logs: Array) -> tuple[float, Array]:
        slope, intercept, factor = np.exp(logs[0]), logs[2:], np.exp(logs[1])
        root = np.sqrt(1.0 + factor * v)
        z = (slope * m + intercept) / root
        log_p = log_softmax(z, axis=1)
        by_z = (np.exp(log_p) - targets) / len(z)
        by_slope, by_factor = np.sum(by_z * m / root), -0.5 * np.sum(by_z * z * v / np.square(root))
        return -np.sum(targets * log_p) / len(z), np.r_[slope * by_slope, factor * by_factor, (by_z / root).sum(axis=0)]

    found = minimize(loss, np.r_[0.0, -1.0, np.zeros(n_classes)], jac=True, method="L-BFGS-B").x
    slope = np.full(n_classes, np.exp(found[0]) / scale)
    model.calibration_ = np.column_stack([slope, found[2:]])
    model.calibration_variance_ = float(np.exp(found[1]) / scale**2)
    if model.probability == "isotonic":
        p, least, y = np.exp(log_sigmoids(model, mean, variance)), 1.0 / (len(y) + 2.0), np.tile(y, n_levels)
        maps = [IsotonicRegression(y_min=least, y_max=1.0 - least).fit(p[:, k], y == k) for k in range(n_classes)]
        places = np.unique(np.concatenate([own.X_thresholds_ for own in maps]))
        values = [np.interp(places, own.X_thresholds_, own.y_thresholds_) for own in maps]
        model.isotonic_ = np.vstack([places, *values])


def log_sigmoids(model: Any, mean: Array, variance: Array) -> Array:
    """Return the logarithms of the probabilities of ``"sigmoid"``; the last axis is that of the classes."""
    slope, intercept = model.calibration_.T
    root = np.sqrt(1.0 + model.calibration_variance_ * _of_classes(variance))
    return log_softmax((slope * _of_classes(mean) + intercept) / root, axis=-1)


def log_probabilities(model: Any, X: Any) -> Array:
    """Return the logarithms of the calibrated probabilities of checked rows."""
    if not hasattr(model, "calibration_"):
        raise ValueError(
            f"probability={model.probability!r} takes effect at the end of fit, and this model was fitted without it; "
            "fit again."
        )
    logs = log_sigmoids(model, *model._score_moments(X))
    if model.probability == "sigmoid":
        return logs
    if not hasattr(model, "isotonic_"):
        raise ValueError("probability='isotonic' takes effect at the end of a fit: fit again.")
    places, *values = model.isotonic_
    p = np.column_stack([np.interp(own, places, to) for own, to in zip(np.exp(logs).T, values, strict=True)])
    return np.log(p / p.sum(axis=1, keepdims=True))


def _of_classes(scores: Array) -> Array:
    """Return one column per class; the first of two classes has the score 0."""
    return np.concatenate([np.zeros_like(scores), scores], axis=-1) if scores.shape[-1] == 1 else scores
