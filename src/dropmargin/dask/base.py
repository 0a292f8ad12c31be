"""What the classifiers of `dropmargin.dask` have beside those of the library: data on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dropmargin.dask.cluster import find_client
from dropmargin.dask.inputs import is_distributed, partition
from dropmargin.dask.lazily import predict_lazily
from dropmargin.dask.partitions import DaskPartitions
from dropmargin.data import Partitions, Rows, to_arrays
from dropmargin.estimators import validation
from dropmargin.estimators.base import MarginalisedClassifier, _gives_probabilities
from dropmargin.estimators.inspection import check_rows
from dropmargin.estimators.partition_fit import fit_partitions
from dropmargin.streaming.checkpoint import Log, LoggedPartitions, hash_of
from dropmargin.streaming.files import PathLike
from dropmargin.streaming.watching import fit_progress, parameter_hash

#: The parameters that the local classes lack.
CLUSTER_PARAMETERS = ("client", "timeout")


class ClusterClassifier(MarginalisedClassifier):
    """Base of the classifiers that are trained on a Dask cluster."""

    client: Any
    timeout: float | None
    _local_class: type[MarginalisedClassifier]

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: PathLike | None = None,
        progress: bool = True,
    ) -> ClusterClassifier:
        """Fit the model to data on the cluster.

        Parameters
        ----------
        X : dask array or data frame of shape (n_samples, n_features), or list of delayed partitions
            Blocks are dense, CSR or data frames, whatever the collection says of them. They are cut by rows only. An
            item of a list may also be a pair of rows and labels, or a triple with weights; then ``y`` is ``None``.
        y : dask array or series, or list of delayed partitions
            Labels, cut as ``X`` is; sizes that are not known are compared in the first pass.
        sample_weight : dask array or series, or list of delayed partitions, default=None
        checkpoint : path-like, default=None
            A file of the client from which a fit that was killed goes on, if it is there, on any cluster, and which is
            written otherwise. It costs a pass over the data, to know them again.
        progress : bool, default=True
            Whether to show a bar with the time left, on a terminal or in a notebook.

        Returns
        -------
        self : the fitted estimator. If the fit fails or is interrupted, the estimator is as it was before.
        """
        self._problem()  # its parameters, before any work
        with self.open(X, y, sample_weight) as (data, names, feature_names), ExitStack() as stack:
            parts: Partitions[Rows] = data
            if checkpoint is not None:
                log = Log(
                    Path(checkpoint), hash_of(*data.gather(data.map(_hash_rows))), parameter_hash(self.to_local())
                )
                stack.callback(log.close)
                parts = LoggedPartitions(lambda: data, data.n_partitions, log, is_owned=False)
            monitor = stack.enter_context(fit_progress(self, progress))
            fit_partitions(self, parts, names, feature_names, monitor)
        return self

    @contextmanager
    def open(self, X: Any, y: Any, sample_weight: Any) -> Iterator[tuple[DaskPartitions[Rows], list[str], Any]]:
        """Yield the rows as partitions on the cluster, what to call each, and the names of the features."""
        timeout = self.timeout
        if timeout is not None:
            timeout = validation.check_number("timeout", timeout, 0.0, low_open=True)
        rows = partition(X, y, sample_weight)
        client = find_client(self.client)
        names = [f"partition {i}" for i in range(len(rows.rows))]
        data: DaskPartitions[Rows] = DaskPartitions(client, rows.start(client), timeout)
        with data:
            yield data, names, rows.feature_names

    def to_local(self) -> MarginalisedClassifier:
        """Return the same classifier, fitted if this one is, as the class of the library that needs no cluster."""
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in CLUSTER_PARAMETERS}
        local = self._local_class(**params)
        for name, value in vars(self).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(local, name, value)
        return local

    def decision_function(self, X: Any) -> Any:
        """Return the scores of the rows of ``X``: lazily, if they are on the cluster."""
        return self._lazily("decision_function", X) if is_distributed(X) else super().decision_function(X)

    def predict(self, X: Any) -> Any:
        """Return the predicted label of each row of ``X``: lazily, if they are on the cluster."""
        return self._lazily("predict", X) if is_distributed(X) else super().predict(X)

    @available_if(_gives_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, one column per class: lazily, if the rows are on the cluster."""
        return self._lazily("predict_proba", X) if is_distributed(X) else super().predict_proba(X)

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of `predict_proba`: lazily, if the rows are on the cluster."""
        return self._lazily("predict_log_proba", X) if is_distributed(X) else super().predict_log_proba(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy, of data as in `fit` or in memory."""
        if not (is_distributed(X) or y is None):
            return super().score(X, y, sample_weight)
        check_is_fitted(self)
        with self.open(X, y, sample_weight) as (data, _, _):
            right, total = data.map_sum(_count_right, self.to_local())
        if not total:
            raise ValueError("There is nothing to score: X has no rows, or none with any weight.")
        return right / total

    def _lazily(self, method: str, X: Any) -> Any:
        check_is_fitted(self)
        return predict_lazily(self.to_local(), method, X)

    def __sklearn_clone__(self) -> ClusterClassifier:
        """Return an unfitted copy with the same client: connections cannot be copied."""
        twin = clone(self.to_local()).get_params(deep=False)
        return type(self)(**twin, **{name: getattr(self, name) for name in CLUSTER_PARAMETERS})

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: all but the client."""
        return super().__getstate__() | {"client": None}


def _count_right(rows: Rows, model: MarginalisedClassifier) -> tuple[float, float]:
    if not len(rows.y):
        return 0.0, 0.0
    y = np.asarray(rows.y).ravel()
    weights = np.ones(len(y)) if rows.sample_weight is None else np.asarray(rows.sample_weight, dtype=np.float64)
    return float(weights @ (model.predict(rows.X) == y)), float(weights.sum())


def _hash_rows(rows: Rows) -> bytes:
    """Return a hash of a partition's rows, labels and weights."""
    checked = check_rows(rows)
    return hash_of(checked.X.shape, *to_arrays(checked.X), dask.base.tokenize(checked.y), checked.sample_weight)
