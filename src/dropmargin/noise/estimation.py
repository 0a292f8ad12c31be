"""Dropout rates from data: how often a feature of the training data is absent in the target data."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.data.deletion import presence
from dropmargin.data.inputs import check_rows, column_names, with_columns
from dropmargin.noise.groups import group_features
from dropmargin.typing import Array


def estimate_dropout_rates(X_train: Any, X_target: Any, groups: Any = None) -> Array:
    """Return one dropout rate per feature, estimated from unlabelled rows of the target data.

    ``rate_d = max(0, 1 - P_target(x_d present) / P_train(x_d present))``, where an entry is present if it is neither
    zero nor NaN, and ``P`` is the share of rows. A feature that is at least as frequent as in training has rate 0.

    Parameters
    ----------
    X_train : {array-like, sparse matrix, data frame} of shape (n_train, n_features)
        The training data.
    X_target : {array-like, sparse matrix, data frame} of shape (n_target, n_features)
        Rows from where the model will be used, with the same features; columns of data frames in any order.
    groups : array-like of shape (n_features,) or mapping, default=None
        Groups of features, as for `DropoutNoise`. A group is present in a row if any of its features is; all features
        of a group have the same rate.

    Returns
    -------
    rates : ndarray of shape (n_features,)
        Rates in [0, 1), for ``DropoutNoise(rate=rates)`` or ``DropoutNoise(rate=rates, groups=groups)``.

    See Also
    --------
    DropoutNoise : The noise with these rates.

    Notes
    -----
    A feature that is never present in the target would have rate 1, which is not allowed. Its share of rows is set to
    ``1 / (n_target + 1)`` instead. Its rate is then at most ``1 - 1 / (n_target + 1)``, and 0 if the feature is so rare
    in training that its absence from ``n_target`` rows is no evidence. A feature that is never present in training has
    rate 0.

    Examples
    --------
    >>> import numpy as np
    >>> from dropmargin import estimate_dropout_rates
    >>> train = np.array([[1.0, 2.0], [3.0, 1.0]])
    >>> target = np.array([[1.0, 0.0], [2.0, 5.0], [1.0, np.nan], [4.0, 0.0]])
    >>> estimate_dropout_rates(train, target)
    array([0.  , 0.75])
    """
    names = column_names(X_train)
    try:
        X_target = with_columns(X_target, names)
    except ValueError as error:
        raise ValueError(f"X_target must have the features of X_train: {error}.") from None
    train, target = (
        check_rows(X, ensure_all_finite=False, input_name=name)
        for name, X in (("X_train", X_train), ("X_target", X_target))
    )
    if train.shape[1] != target.shape[1]:
        raise ValueError(
            f"X_target must have the features of X_train: X_train has {train.shape[1]} features, X_target has "
            f"{target.shape[1]}."
        )
    numbers = None if groups is None else group_features(groups, train.shape[1], names)[0]
    in_train, in_target = presence(train, numbers), presence(target, numbers)
    in_target = np.where(in_target == 0.0, 1.0 / (target.shape[0] + 1), in_target)
    rates = np.zeros(train.shape[1])
    observed = in_train > 0.0
    rates[observed] = np.maximum(0.0, 1.0 - in_target[observed] / in_train[observed])
    return rates
