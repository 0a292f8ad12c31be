"""Workers that join, leave, or are killed, lost data and schedulers, concurrent fits, and what is left behind."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client
from distributed.core import Status
from numpy.testing import assert_allclose
from sklearn.base import clone

from backends import reference
from clusters import (
    PATIENCE,
    assert_same_optimum,
    at_iteration,
    local_cluster,
    make_rows,
    partitions,
    process_cluster,
    serial_fit,
)
from dropmargin import DropoutLogisticRegression, DropoutLogisticRegressionCV
from dropmargin.dask import ClusterError, fit
from dropmargin.dask.partitions import DaskPartitions
from dropmargin.data import Rows
from dropmargin.estimators.fitting import fit_partitions
from dropmargin.model_selection import partitions as searches
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


def test_a_worker_is_lost_in_a_search(monkeypatch):
    """After some passes over the folds; the search goes on with the other worker."""
    search = DropoutLogisticRegressionCV(noises=[0.1, 0.5], Cs=[0.01, 0.1], cv=2, prune=False, verbose=0)
    rows, call, n_calls = make_rows(5), DaskPartitions.map_sum, itertools.count()
    expected = clone(search).fit(np.concatenate([own.X for own in rows]), np.concatenate([own.y for own in rows]))
    monkeypatch.setattr(searches, "_GATHERED_BYTES", 0)
    with local_cluster(2) as client:

        def map_sum(self, *args):
            if next(n_calls) == 25:
                close_worker(client)
            return call(self, *args)

        monkeypatch.setattr(DaskPartitions, "map_sum", map_sum)
        model = fit(clone(search), [dask.delayed(_load)(own, None) for own in rows])
        assert len(client.nthreads()) == 1
    assert next(n_calls) > 50
    assert_allclose(model.scores_, expected.scores_, rtol=1e-3)


def test_scattered_data_that_are_lost_are_an_error():
    """Dask does not know how to compute them again."""
    with local_cluster(2) as client:
        sent = client.scatter([(own.X, own.y) for own in make_rows(4)], broadcast=False)
        monitor, data = at_iteration(2, lambda: close_worker(client)), DaskPartitions(client, sent, timeout=PATIENCE)
        with pytest.raises(ClusterError, match=says("lost with a worker", "Client.scatter", "dask.delayed")):
            fit_partitions(clone(MODEL), data.transformed(_as_rows), monitor=monitor)


def _as_rows(pair):
    return Rows(*pair)


def test_two_clients_fit_on_one_cluster_at_the_same_time():
    expected = [serial_fit(clone(MODEL), n_parts) for n_parts in (3, 5)]
    with local_cluster(2) as client, Client(client.cluster, set_as_default=False) as other:

        def run(own, n_parts):
            return fit_partitions(clone(MODEL), partitions(own, n_parts))

        with ThreadPoolExecutor(2) as pool:
            for model, wanted in zip(pool.map(run, [client, other], [3, 5]), expected, strict=True):
                assert_same_optimum(model, wanted)


def test_clients_that_cannot_be_used_are_refused():
    pairs = [dask.delayed((own.X, own.y)) for own in make_rows(2)]
    with pytest.raises(ValueError, match="no Dask client"):
        fit(clone(MODEL), pairs)
    with pytest.raises(TypeError, match=r"client must be a dask\.distributed\.Client or None, got str"):
        fit(clone(MODEL), pairs, client="scheduler:8786")

    async def in_a_loop():
        async with Client(n_workers=1, processes=False, dashboard_address=":0", asynchronous=True) as client:
            with pytest.raises(ValueError, match="client is asynchronous"):
                fit(clone(MODEL), pairs, client=client)

    asyncio.run(in_a_loop())
    with local_cluster(1) as client:
        pass
    with pytest.raises(ClusterError, match="client is closed"):
        fit(clone(MODEL), pairs, client=client)


def test_a_lost_scheduler_is_an_error():
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}), local_cluster(1) as client:
        model, close = clone(MODEL), client.cluster.scheduler.close
        monitor = at_iteration(2, lambda: client.sync(close))
        with pytest.raises(ClusterError, match="connection to the Dask scheduler is lost"):
            fit_partitions(model, partitions(client, 3), monitor=monitor)
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


def kill_workers(client, n_workers, restart):
    """Kill some workers; their nannies start new ones only if ``restart``."""
    alive = [nanny for nanny in client.cluster.workers.values() if nanny.pid is not None]
    for nanny in alive[:n_workers]:
        if not restart:
            nanny.status = Status.closing_gracefully
        os.kill(nanny.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_workers_with_and_without_restart():
    expected = serial_fit(clone(MODEL), 5)
    with process_cluster(2) as client:
        for restart in (True, False):
            client.wait_for_workers(2, timeout=PATIENCE)
            monitor = at_iteration(2, lambda restart=restart: kill_workers(client, 1, restart))
            assert_same_optimum(fit_partitions(clone(MODEL), partitions(client, 5), monitor=monitor), expected)
            assert len(monitor.seen) > 2
        assert len(client.nthreads()) == 1  # the other one was not restarted
        monitor = at_iteration(2, lambda: kill_workers(client, 1, False))
        with pytest.raises(ClusterError, match=says("timeout=5 seconds", "workers: none")):
            fit_partitions(clone(MODEL), partitions(client, 5, timeout=5.0), monitor=monitor)


def die_at_first(rows, folder, n_deaths):
    """Return the number of rows, after killing the own process in the first ``n_deaths`` calls."""
    if len(rows.y) == 18:
        for death in range(n_deaths):
            path = Path(folder) / f"{death}"
            if not path.exists():
                path.touch()
                os.kill(os.getpid(), signal.SIGKILL)
    return (len(rows.y),)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_task_that_kills_its_worker_is_tried_four_times(tmp_path):
    with process_cluster(2) as client:
        # All of 18 rows; no task finishes while workers are started again four times.
        data = partitions(client, 5, timeout=5 * PATIENCE)
        for number, n_deaths in enumerate((3, 100)):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            if n_deaths == 3:
                assert data.map_sum(die_at_first, str(folder), 3) == (90,)
            else:
                with pytest.raises(ClusterError, match=says("killed its worker 4 times", "memory")):
                    data.map_sum(die_at_first, str(folder), n_deaths)
