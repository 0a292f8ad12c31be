"""Training on a Dask cluster: the classifiers of the library for data that are spread over many machines.

>>> from dask.distributed import Client
>>> from dropmargin.dask import DropoutSVC
>>> client = Client("scheduler:8786")  # doctest: +SKIP
>>> model = DropoutSVC(noise=0.5).fit(X, y)  # dask arrays, data frames, or delayed partitions  # doctest: +SKIP
"""

try:
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError("dropmargin.dask needs Dask: pip install 'dropmargin[dask]'") from error

from dropmargin.dask.cluster import ClusterError
from dropmargin.dask.estimators import DropoutLogisticRegression, DropoutSVC, MCFClassifier, NoisyLinearClassifier
from dropmargin.dask.partitions import DaskPartitions
from dropmargin.dask.search import GridSearch, grid_search

__all__ = [
    "ClusterError",
    "DaskPartitions",
    "DropoutLogisticRegression",
    "DropoutSVC",
    "GridSearch",
    "MCFClassifier",
    "NoisyLinearClassifier",
    "grid_search",
]
