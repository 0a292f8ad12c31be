"""The classifiers on a cluster: the parameters of the local classes, and those of the cluster."""

from __future__ import annotations

from typing import Any

from dropmargin import estimators
from dropmargin.dask.base import ClusterClassifier

_CLUSTER = """
    client : dask.distributed.Client or None, default=None
        ``None`` means the present client. It is not pickled.
    timeout : float or None, default=600
        The most seconds in which the cluster may finish nothing; then the fit ends with a `ClusterError`.
    n_jobs : int or None, default=None
        Without effect: each worker uses its threads.
    verbose : int, default=0
        Whether to print a line per iteration to the standard error stream.
    """


def _document(cls: type) -> type:
    """Give a class the docstring of the local one, with the parameters of the cluster before those it returns."""
    local = (cls.__mro__[2].__doc__ or "").partition("\n    Examples\n")[0]
    begin, end = local.index("    n_jobs : "), local.index("\n    Attributes\n")
    cls.__doc__ = local[:begin] + _CLUSTER.strip("\n ").join(["    ", "\n"]) + local[end:].rstrip() + "\n    "
    return cls


@_document
class NoisyLinearClassifier(ClusterClassifier, estimators.NoisyLinearClassifier):
    _local_class = estimators.NoisyLinearClassifier

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
        client: Any = None,
        timeout: float | None = 600.0,
    ) -> None:
        super().__init__(
            loss=loss,
            noise=noise,
            C=C,
            l1_ratio=l1_ratio,
            approximation=approximation,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            fit_intercept=fit_intercept,
            multi_class=multi_class,
            missing=missing,
            class_weight=class_weight,
            warm_start=warm_start,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.client = client
        self.timeout = timeout


@_document
class DropoutSVC(ClusterClassifier, estimators.DropoutSVC):
    _local_class = estimators.DropoutSVC

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
        client: Any = None,
        timeout: float | None = 600.0,
    ) -> None:
        super().__init__(
            noise=noise,
            C=C,
            l1_ratio=l1_ratio,
            approximation=approximation,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            fit_intercept=fit_intercept,
            multi_class=multi_class,
            missing=missing,
            class_weight=class_weight,
            warm_start=warm_start,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.client = client
        self.timeout = timeout


@_document
class DropoutLogisticRegression(ClusterClassifier, estimators.DropoutLogisticRegression):
    _local_class = estimators.DropoutLogisticRegression

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
        client: Any = None,
        timeout: float | None = 600.0,
    ) -> None:
        super().__init__(
            noise=noise,
            C=C,
            l1_ratio=l1_ratio,
            approximation=approximation,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            fit_intercept=fit_intercept,
            multi_class=multi_class,
            missing=missing,
            class_weight=class_weight,
            warm_start=warm_start,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.client = client
        self.timeout = timeout


@_document
class MCFClassifier(ClusterClassifier, estimators.MCFClassifier):
    _local_class = estimators.MCFClassifier

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
        client: Any = None,
        timeout: float | None = 600.0,
    ) -> None:
        super().__init__(
            loss=loss,
            noise=noise,
            C=C,
            l1_ratio=l1_ratio,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            fit_intercept=fit_intercept,
            multi_class=multi_class,
            missing=missing,
            class_weight=class_weight,
            warm_start=warm_start,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.client = client
        self.timeout = timeout
