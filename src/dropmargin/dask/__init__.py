"""Training and prediction on a Dask cluster, for data that are distributed over machines.

>>> from dask.distributed import Client
>>> import dropmargin
>>> client = Client("scheduler:8786")  # doctest: +SKIP
>>> model = dropmargin.dask.fit(dropmargin.DropoutSVC(noise=0.5), X, y)  # doctest: +SKIP
"""

try:
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError("dropmargin.dask needs Dask: pip install 'dropmargin[dask]'") from error

from dropmargin.dask.cluster import ClusterError
from dropmargin.dask.fitting import fit, predict

__all__ = ["ClusterError", "fit", "predict"]
