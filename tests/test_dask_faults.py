"""Workers that join and leave, lost data and concurrent fits, on a cluster within this process.

Workers are closed, and their data are lost. In `test_dask_kills` they are processes that are killed by a signal.
"""

from __future__ import annotations

import threading
import time
from typing import ClassVar
from weakref import WeakSet

import dask
import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_array_equal
from sklearn.base import clone

from backends import reference
from clusters import (
    PATIENCE,
    MessageCounter,
    assert_same_bits,
    at_iteration,
    local_cluster,
    make_rows,
    partitions,
    serial_fit,
)
from dropmargin import DropoutLogisticRegression
from dropmargin.dask import ClusterError, fit
from dropmargin.dask.partitions import DaskPartitions
from dropmargin.dask.placement import assign_workers
from dropmargin.dask.tasks import join_nodes
from dropmargin.data import PerPartition, Rows, products
from dropmargin.estimators.partition_fit import fit_partitions
from marks import says

pytestmark = pytest.mark.timeout(240)

MODEL = DropoutLogisticRegression(C=0.1, tol=1e-3)


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
        assert_same_bits(fit_partitions(clone(MODEL), partitions(client, 5), monitor=monitor), expected)
        assert len(monitor.seen) > 2
        assert len(client.nthreads()) == 1
        monitor = at_iteration(2, lambda: add_worker(client))
        assert_same_bits(fit_partitions(clone(MODEL), partitions(client, 5), monitor=monitor), expected)
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


def test_the_loss_of_scattered_data_is_an_error():
    with local_cluster(2) as client:
        worker, other = client.nthreads()
        rows = make_rows(2)
        parts = [*client.scatter(rows[:1], workers=[worker]), *client.scatter(rows[1:], workers=[other])]
        data = DaskPartitions(client, parts, timeout=20.0)
        with pytest.raises(ClusterError, match=says("lost", "Client.scatter", "dask.delayed")):
            fit_partitions(clone(MODEL), data, monitor=at_iteration(1, lambda: close_worker(client)))


def test_the_loss_of_the_connection_is_an_error():
    with local_cluster(1) as client:
        data = partitions(client, 2, timeout=5.0)
        data.gather(data.map(_n_rows, 0))
        client.close()
        with pytest.raises(ClusterError, match=says("connection", "lost")):
            data.map_sum(_count, 1)


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


def test_concurrent_fits_of_two_clients():
    with local_cluster(2) as client, Client(client.cluster, set_as_default=False) as other:
        models = [clone(MODEL).set_params(C=C) for C in (0.05, 0.1, 0.2)]
        clients = [client, client, other]
        threads = [
            threading.Thread(target=fit_partitions, args=(model, partitions(own, 3)))
            for model, own in zip(models, clients, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for model in models:
        assert_same_bits(model, serial_fit(clone(model), 3))


def _n_rows(rows, own):
    return len(rows.y) + own


def _count(rows, factor):
    return (factor * len(rows.y),)


def _scores(rows, w):
    return rows.X @ w


def _back(rows, scores):
    return rows.X.T @ scores, float(scores @ scores)


def test_the_scheduler_has_no_tasks_of_earlier_passes():
    with local_cluster(2) as client:
        data = partitions(client, 4)
        tasks = client.cluster.scheduler.tasks
        w, counts = np.ones(5), []
        for _ in range(25):
            scores = data.map(_scores, w)
            w = w + 1e-3 * data.map_sum(_back, scores)[0]
            counts.append(len(tasks))
        # The tasks of this pass, those of the one before that are being released, and the partitions.
        assert max(counts) <= 4 + 2 * 4 + 2
        del scores
        data.close()
        _wait_until(lambda: not tasks)
        assert not client.futures


def _wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_large_arguments_and_large_sums_do_not_go_through_the_client():
    parts = make_rows(17)
    w = np.linspace(0.0, 1.0, 5)
    serial = reference(parts)
    expected = serial.map_sum(_back, serial.map(_scores, w))
    with local_cluster(3) as client:
        data = partitions(client, 17, inline_bytes=0, client_bytes=0)
        for _ in range(2):  # the second time the sums are added on the cluster
            back, square = data.map_sum(_back, data.map(_scores, w))
            assert_array_equal(back, expected[0])
            assert square == expected[1]
        assert data.gather(data.map(_n_rows, PerPartition(range(17)))) == [len(p.y) + i for i, p in enumerate(parts)]


def test_a_mapped_function_is_sent_with_the_call_that_needs_its_results():
    parts, w = make_rows(5), np.linspace(0.0, 1.0, 5)
    serial = reference(parts)
    expected = serial.map_sum(_back, serial.map(_scores, w))[0]
    with local_cluster(2) as client:
        data = partitions(client, 5)
        data.gather(data.map(_n_rows, 0))
        messages = MessageCounter(client)
        scores = data.map(_scores, w)
        data.map(_scores, 2.0 * w)  # its results are not used
        for _ in range(2):
            assert_array_equal(data.map_sum(_back, scores)[0], expected)
        found = data.gather(scores)  # they are there: no message
        assert_array_equal(np.concatenate(found), np.concatenate([rows.X @ w for rows in parts]))
        assert len(messages.n_tasks) == 2


@products(0)
def _shifted(rows, scores, by):
    return scores + by


def test_a_function_without_products_is_called_by_each_task_that_needs_its_results():
    parts, w = make_rows(5), np.linspace(0.0, 1.0, 5)
    serial = reference(parts)
    expected = serial.map_sum(_back, serial.map(_shifted, serial.map(_scores, w), 1.0))[0]
    with local_cluster(2) as client:
        data = partitions(client, 5)
        data.gather(data.map(_n_rows, 0))
        messages = MessageCounter(client)
        shifted = data.map(_shifted, data.map(_scores, w), 1.0)
        for _ in range(2):
            assert_array_equal(data.map_sum(_back, shifted)[0], expected)
        assert messages.n_tasks == [4, 2]  # scores and sums of two workers, then the sums alone
        found = data.gather(shifted)
        assert_array_equal(np.concatenate(found), np.concatenate([rows.X @ w + 1.0 for rows in parts]))


def test_transformed_partitions_are_one_result_of_each_worker():
    parts = make_rows(5)
    with local_cluster(2) as client:
        data = partitions(client, 5)
        data.gather(data.map(_n_rows, 0))
        messages = MessageCounter(client)
        with data.map_partitions(_first_rows, 4).map_partitions(_first_rows, 3) as fewer:
            assert fewer.map_sum(_count, 1) == (15,)
            with fewer.map_partitions(_first_rows, 2) as fewest:
                assert fewest.map_sum(_count, 1) == (10,)
        assert messages.n_tasks == [4, 4]
        assert data.map_sum(_count, 1) == (sum(len(rows.y) for rows in parts),)


def _first_rows(rows, number):
    return Rows(rows.X[:number], rows.y[:number])


def test_a_worker_with_threads_gets_one_task():
    with local_cluster(2, n_threads=3) as client:
        data = partitions(client, 8)
        data.gather(data.map(_n_rows, 0))
        messages = MessageCounter(client)
        assert len(set(data.gather(data.map(_thread, 0)))) > 2
        assert messages.n_tasks == [2]
        assert_same_bits(fit_partitions(clone(MODEL), data), serial_fit(clone(MODEL), 8))


def _thread(rows, own):
    time.sleep(0.02)
    return threading.get_ident()


def test_lost_results_are_computed_again():
    parts, w = make_rows(5), np.linspace(0.0, 1.0, 5)
    serial = reference(parts)
    expected = serial.map_sum(_back, serial.map(_twice, serial.map(_scores, w)))[0]
    with local_cluster(2) as client:
        data = partitions(client, 5)
        scores = data.map(_scores, w)
        data.map_sum(_back, scores)
        close_worker(client)  # with the scores of its partitions
        twice = data.map(_twice, scores)
        assert_array_equal(data.map_sum(_back, twice)[0], expected)
        messages = MessageCounter(client)
        for _ in range(3):
            assert_array_equal(data.map_sum(_back, twice)[0], expected)
        assert len(messages.n_tasks) == 3


def test_unreferenced_results_are_deleted_first():
    with local_cluster(1) as client:
        data = partitions(client, 2)
        scores = data.map(_kept, np.ones(5))
        data.map_sum(_back_of_kept, scores)
        assert data.map_sum(_n_kept) == (2 * 2,)  # both partitions see the results of both
        del scores
        data.map_sum(_count, 1)
        assert data.map_sum(_n_kept) == (0,)


class _Scores:
    """Scores that can be counted as long as they exist."""

    existing: ClassVar[WeakSet] = WeakSet()

    def __init__(self, values):
        self.values = values
        self.existing.add(self)


def _kept(rows, w):
    return _Scores(rows.X @ w)


def _back_of_kept(rows, scores):
    return (rows.X.T @ scores.values,)


def _n_kept(rows):
    return (len(_Scores.existing),)


def _twice(rows, scores):
    return 2.0 * scores


# Helper functions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 11, 16, 17, 33])
def test_sums_of_groups_are_added_in_the_order_of_the_tree(n):
    rng = np.random.default_rng(n)
    values = rng.normal(size=n) ** 5
    owners = rng.integers(3, size=n)
    nodes = {}
    for owner in range(3):
        own = {(0, int(i)): (values[i],) for i in np.flatnonzero(owners == owner)}
        nodes |= join_nodes(own, n)
    ((total,),) = join_nodes(nodes, n).values()
    tree = list(values)
    while len(tree) > 1:
        tree = [sum(tree[i : i + 2][1:], start=tree[i]) for i in range(0, len(tree), 2)]
    assert total == tree[0]


def test_partitions_stay_where_they_are_up_to_the_share_of_a_worker():
    assert assign_workers([["a"], ["b"], ["a"], ["b"]], {"a": 1, "b": 1}) == ["a", "b", "a", "b"]
    assert assign_workers([["a"]] * 4, {"a": 1, "b": 1}) == ["a", "a", "b", "b"]  # b has joined
    assert assign_workers([["a"]] * 4, {"a": 3, "b": 1}) == ["a", "a", "a", "b"]
    assert assign_workers([["a", "b"]] * 2, {"a": 1, "b": 1}) == ["a", "b"]  # copies are used
    assert assign_workers([["gone"], []], {"a": 1}) == [None, None]
    assert assign_workers([["a"]], {}) == [None]
