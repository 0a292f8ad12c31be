"""
Rows on a cluster
=================

`dropmargin.dask.fit` fits an ordinary estimator to rows on Dask workers. The coefficients do not depend on the number
of workers, and are those of a local fit up to rounding. Needs ``pip install 'dropmargin[dask]'``.
"""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client

import dropmargin.dask
from dropmargin import DropoutLogisticRegression

rng = np.random.default_rng(0)
X = rng.normal(size=(4000, 50))
y = X @ rng.normal(size=50) + 2.0 * rng.normal(size=4000) > 0.0

if __name__ == "__main__":
    # Workers in this process; `Client("scheduler:8786")` connects to a cluster.
    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        rows, labels = da.from_array(X, chunks=(1000, 50)), da.from_array(y, chunks=1000)
        model = dropmargin.dask.fit(DropoutLogisticRegression(noise=0.1), rows, labels, client=client)
        accuracy = float((dropmargin.dask.predict(model, rows) == labels).mean().compute())
    local = DropoutLogisticRegression(noise=0.1).fit(X, y)
    print(f"accuracy {accuracy:.3f}; largest difference to a local fit {np.abs(model.coef_ - local.coef_).max():.1g}")
    gaps = [entry.gap / entry.objective for entry in model.history_]  # the first ones are not known
    plt.semilogy([entry.passes for entry in model.history_], gaps, "o-")
    plt.axhline(model.tol, color="grey", linestyle=":")
    plt.xlabel("passes over the data")
    plt.ylabel("estimated relative gap")
    plt.show()
