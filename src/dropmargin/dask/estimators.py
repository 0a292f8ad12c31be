"""The classifiers on a cluster: the parameters of the local classes, and those of the cluster."""

from __future__ import annotations

from typing import Any

from dropmargin import estimators
from dropmargin.dask.base import ClusterClassifier
from dropmargin.estimators.parameters import Parameters, parameter


class ClusterParameters(Parameters):
    """The parameters that the local classes lack."""

    client: Any = parameter(default=None)
    timeout: float | None = parameter(default=600.0)


class DropoutSVC(ClusterParameters, ClusterClassifier, estimators.DropoutSVC):
    """`dropmargin.DropoutSVC`, trained on a Dask cluster.

    Parameters that are not listed here, and the fitted attributes, are those of `dropmargin.DropoutSVC`.
    ``n_jobs`` has no effect: each worker uses its threads.

    Parameters
    ----------
    client : dask.distributed.Client or None, default=None
        The client of the cluster; ``None`` means the current one. It is not pickled.
    timeout : float or None, default=600
        The longest time in seconds in which the cluster may finish no task; then the fit ends with a `ClusterError`.
        ``None`` means no limit.

    See Also
    --------
    dropmargin.DropoutSVC : The local class.
    grid_search : Choose noise and ``C`` by cross-validation on the cluster.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from dropmargin.dask import DropoutSVC
    >>> client = Client("scheduler:8786")  # doctest: +SKIP
    >>> X = da.random.normal(size=(1000, 5), chunks=(250, 5))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> model = DropoutSVC(noise=0.5).fit(X, y)  # doctest: +SKIP
    >>> model.predict(X)  # lazy: a dask array  # doctest: +SKIP
    """

    _local_class = estimators.DropoutSVC


class DropoutLogisticRegression(ClusterParameters, ClusterClassifier, estimators.DropoutLogisticRegression):
    """`dropmargin.DropoutLogisticRegression`, trained on a Dask cluster.

    Parameters that are not listed here, and the fitted attributes, are those of `dropmargin.DropoutLogisticRegression`.
    ``n_jobs`` has no effect: each worker uses its threads.

    Parameters
    ----------
    client : dask.distributed.Client or None, default=None
        The client of the cluster; ``None`` means the current one. It is not pickled.
    timeout : float or None, default=600
        The longest time in seconds in which the cluster may finish no task; then the fit ends with a `ClusterError`.
        ``None`` means no limit.

    See Also
    --------
    dropmargin.DropoutLogisticRegression : The local class.
    grid_search : Choose noise and ``C`` by cross-validation on the cluster.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from dropmargin.dask import DropoutLogisticRegression
    >>> client = Client("scheduler:8786")  # doctest: +SKIP
    >>> X = da.random.normal(size=(1000, 5), chunks=(250, 5))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> model = DropoutLogisticRegression(noise=0.5).fit(X, y)  # doctest: +SKIP
    >>> model.predict(X)  # lazy: a dask array  # doctest: +SKIP
    """

    _local_class = estimators.DropoutLogisticRegression


class NoisyLinearClassifier(ClusterParameters, ClusterClassifier, estimators.NoisyLinearClassifier):
    """`dropmargin.NoisyLinearClassifier`, trained on a Dask cluster.

    Parameters that are not listed here, and the fitted attributes, are those of `dropmargin.NoisyLinearClassifier`.
    ``n_jobs`` has no effect: each worker uses its threads.

    Parameters
    ----------
    client : dask.distributed.Client or None, default=None
        The client of the cluster; ``None`` means the current one. It is not pickled.
    timeout : float or None, default=600
        The longest time in seconds in which the cluster may finish no task; then the fit ends with a `ClusterError`.
        ``None`` means no limit.

    See Also
    --------
    dropmargin.NoisyLinearClassifier : The local class.
    grid_search : Choose noise and ``C`` by cross-validation on the cluster.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from dropmargin.dask import NoisyLinearClassifier
    >>> client = Client("scheduler:8786")  # doctest: +SKIP
    >>> X = da.random.normal(size=(1000, 5), chunks=(250, 5))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> model = NoisyLinearClassifier(noise=0.5).fit(X, y)  # doctest: +SKIP
    >>> model.predict(X)  # lazy: a dask array  # doctest: +SKIP
    """

    _local_class = estimators.NoisyLinearClassifier


class MCFClassifier(ClusterParameters, ClusterClassifier, estimators.MCFClassifier):
    """`dropmargin.MCFClassifier`, trained on a Dask cluster.

    Parameters that are not listed here, and the fitted attributes, are those of `dropmargin.MCFClassifier`.
    ``n_jobs`` has no effect: each worker uses its threads.

    Parameters
    ----------
    client : dask.distributed.Client or None, default=None
        The client of the cluster; ``None`` means the current one. It is not pickled.
    timeout : float or None, default=600
        The longest time in seconds in which the cluster may finish no task; then the fit ends with a `ClusterError`.
        ``None`` means no limit.

    See Also
    --------
    dropmargin.MCFClassifier : The local class.
    grid_search : Choose noise and ``C`` by cross-validation on the cluster.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from dropmargin.dask import MCFClassifier
    >>> client = Client("scheduler:8786")  # doctest: +SKIP
    >>> X = da.random.normal(size=(1000, 5), chunks=(250, 5))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> model = MCFClassifier(noise=0.5).fit(X, y)  # doctest: +SKIP
    >>> model.predict(X)  # lazy: a dask array  # doctest: +SKIP
    """

    _local_class = estimators.MCFClassifier
