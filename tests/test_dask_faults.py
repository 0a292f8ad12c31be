"""Workers that join and leave, lost data and concurrent fits, on a cluster within this process.

Workers are closed, and their data are lost. In `test_dask_kills` they are processes that are killed by a signal.
"""

from __future__ import annotations

import time

import dask
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from backends import reference
from clusters import PATIENCE, assert_same_optimum, at_iteration, local_cluster, make_rows, partitions, serial_fit
from dropmargin import DropoutLogisticRegression
from dropmargin.dask import ClusterError, fit
from dropmargin.data import Rows
from dropmargin.estimators.fitting import fit_partitions
from marks import says

pytestmark = pytest.mark.timeout(240)

MODEL = DropoutLogisticRegression(C=0.1, tol=1e-10)


def close_worker(client, index=0):
    """Close a worker; the scheduler is told."""
    workers = client.cluster.workers
    worker = workers.pop(list(workers)[index])
    client.sync(worker.close, timeout=5, executor_wait=False, nanny=False)


def add_worker(client):
    """Add a worker, and wait for it."""
    n_workers = len(client.nthreads())
    client.cluster.scale(n_workers + 1)
    client.wait_for_workers(n_workers + 1, timeout=PATIENCE)


def test_a_worker_is_lost_and_one_joins():
    expected = serial_fit(clone(MODEL), 5)
    with local_cluster(2) as client:
        monitor = at_iteration(2, lambda: close_worker(client))
        assert_same_optimum(fit_partitions(clone(MODEL), partitions(client, 5), monitor=monitor), expected)
        assert len(monitor.seen) > 2
        assert len(client.nthreads()) == 1
        monitor = at_iteration(2, lambda: add_worker(client))
        assert_same_optimum(fit_partitions(clone(MODEL), partitions(client, 5), monitor=monitor), expected)
        assert len(client.nthreads()) == 2


def test_the_loss_of_all_workers_is_an_error_after_the_timeout():
    with local_cluster(1) as client:
        data = partitions(client, 2, timeout=2.0)
        model = clone(MODEL)
        begin = time.monotonic()
        with pytest.raises(ClusterError, match=says("timeout=2 seconds", "workers: none")):
            fit_partitions(model, data, monitor=at_iteration(1, lambda: close_worker(client)))
        assert time.monotonic() - begin < PATIENCE
        assert not hasattr(model, "coef_")


def _load(rows, error):
    if error is not None:
        raise error
    return rows.X, rows.y


@pytest.mark.parametrize("error", [KeyError("column"), OSError("the disk is full"), None], ids=str)
def test_nothing_is_left_on_the_cluster_and_the_error_of_a_task_is_raised_as_it_is(error):
    with local_cluster(2) as client:
        raised = []
        for _ in range(2):
            parts = [dask.delayed(_load)(rows, error if k == 3 else None) for k, rows in enumerate(make_rows(8))]
            if error is None:
                fit(clone(MODEL), parts)
                continue
            with pytest.raises(type(error), match=str(error)) as caught:
                fit(clone(MODEL), parts)
            raised.append(caught.value)  # its traceback refers to the state of the fit
        _wait_until(lambda: not client.futures and not client.cluster.scheduler.tasks)


def _back(rows, w):
    scores = rows.X @ w
    return rows.X.T @ scores, float(scores @ scores)


def _weighted(rows):
    return Rows(rows.X, rows.y, np.ones(len(rows)), rows.number)


def test_the_scheduler_has_no_tasks_of_earlier_passes():
    with local_cluster(2) as client:
        data = partitions(client, 4)
        tasks = client.cluster.scheduler.tasks
        w, counts = np.ones(5), []
        for _ in range(25):
            w = w + 1e-3 * data.map_sum(_back, w)[0]
            counts.append(len(tasks))
        # The tasks of this pass, those of the one before that are being released, and the partitions.
        assert max(counts) <= 4 + 2 * 4 + 2
        data.release()
        del data
        _wait_until(lambda: not tasks)
        assert not client.futures


def _wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lost_partitions_are_computed_again():
    w = np.linspace(0.0, 1.0, 5)
    expected = reference(make_rows(5)).map_sum(_back, w)[0]
    with local_cluster(2) as client:
        data = partitions(client, 5).transformed(_weighted)
        assert_allclose(data.map_sum(_back, w)[0], expected, rtol=1e-12)
        close_worker(client)
        for _ in range(3):
            assert_allclose(data.map_sum(_back, w)[0], expected, rtol=1e-12)
