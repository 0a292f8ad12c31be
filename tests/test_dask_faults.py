"""Workers that come and go, data that are lost, fits side by side: in a cluster within this process, so it is quick.

Workers here are closed without warning, and all that they have is gone. Those that are killed by a signal are in
`test_dask_kills`.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_array_equal
from sklearn.base import clone

from backends import reference
from clusters import (
    PATIENCE,
    assert_same_bits,
    at_iteration,
    cluster_here,
    make_rows,
    partitions,
    serial_fit,
)
from dropmargin import DropoutLogisticRegression
from dropmargin.dask import ClusterError, DaskPartitions, allocator, messages, tasks
from dropmargin.dask import partitions as dask_partitions
from dropmargin.dask.cluster import Cluster
from dropmargin.dask.placement import assign_workers
from dropmargin.dask.tasks import join_nodes
from dropmargin.data import PerPartition
from dropmargin.estimators.partition_fit import fit_partitions
from marks import says

pytestmark = pytest.mark.timeout(240)

MODEL = DropoutLogisticRegression(C=0.1, tol=1e-3)


def close_worker(client, index=0):
    """Close a worker, and have the scheduler know."""
    workers = client.cluster.workers
    worker = workers.pop(list(workers)[index])
    client.sync(worker.close, timeout=5, executor_wait=False, nanny=False)


def add_worker(client):
    """Add a worker, and wait for it."""
    n_workers = len(client.nthreads())
    client.cluster.scale(n_workers + 1)
    client.wait_for_workers(n_workers + 1, timeout=PATIENCE)


def test_a_worker_is_lost_for_good_and_one_joins():
    expected = serial_fit(clone(MODEL), 5)
    with cluster_here(2) as client:
        monitor = at_iteration(2, lambda: close_worker(client))
        assert_same_bits(fit_partitions(clone(MODEL), partitions(client, 5), monitor=monitor), expected)
        assert len(monitor.seen) > 2
        assert len(client.nthreads()) == 1
        monitor = at_iteration(2, lambda: add_worker(client))
        assert_same_bits(fit_partitions(clone(MODEL), partitions(client, 5), monitor=monitor), expected)
        assert len(client.nthreads()) == 2


def test_without_any_worker_there_is_an_error_within_the_time_limit():
    with cluster_here(1) as client:
        data = partitions(client, 2, timeout=2.0)
        model = clone(MODEL)
        begin = time.monotonic()
        with pytest.raises(ClusterError, match=says("timeout=2 seconds", "no workers")):
            fit_partitions(model, data, monitor=at_iteration(1, lambda: close_worker(client)))
        assert time.monotonic() - begin < PATIENCE
        assert not hasattr(model, "coef_")


def test_scattered_data_that_are_lost_are_an_error_that_says_so():
    with cluster_here(2) as client:
        worker, other = client.nthreads()
        rows = make_rows(2)
        parts = [*client.scatter(rows[:1], workers=[worker]), *client.scatter(rows[1:], workers=[other])]
        data = DaskPartitions(client, parts, timeout=20.0)
        with pytest.raises(ClusterError, match=says("lost", "Client.scatter", "dask.delayed")):
            fit_partitions(clone(MODEL), data, monitor=at_iteration(1, lambda: close_worker(client)))


def test_a_lost_scheduler_is_an_error():
    with cluster_here(1) as client:
        data = partitions(client, 2, timeout=5.0)
        data.gather(data.map(_n_rows, 0))
        client.close()
        with pytest.raises(ClusterError, match=says("connection", "lost")):
            data.map_sum(_count, 1)


def test_two_fits_and_two_clients_on_one_cluster():
    with cluster_here(2) as client, Client(client.cluster, set_as_default=False) as other:
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


def test_nothing_is_left_behind_by_any_number_of_passes():
    with cluster_here(2) as client:
        data = partitions(client, 4)
        tasks = client.cluster.scheduler.tasks
        w, counts = np.ones(5), []
        for _ in range(25):
            scores = data.map(_scores, w)
            w = w + 1e-3 * data.map_sum(_back, scores)[0]
            counts.append(len(tasks))
        # The tasks of this pass, of the one before that are being forgotten, and the partitions.
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


def test_large_arguments_and_large_sums_travel_on_their_own(monkeypatch):
    parts = make_rows(17)
    w = np.linspace(0.0, 1.0, 5)
    monkeypatch.setattr(messages, "_INLINE_BYTES", 0)
    monkeypatch.setattr(dask_partitions, "_MAX_CLIENT_BYTES", 0)
    serial = reference(parts)
    expected = serial.map_sum(_back, serial.map(_scores, w))
    with cluster_here(3) as client:
        data = partitions(client, 17)
        for _ in range(2):  # the second time the tree is on the cluster
            back, square = data.map_sum(_back, data.map(_scores, w))
            assert_array_equal(back, expected[0])
            assert square == expected[1]
        assert data.gather(data.map(_n_rows, PerPartition(range(17)))) == [len(p.y) + i for i, p in enumerate(parts)]


@pytest.fixture
def sent(monkeypatch):
    """The numbers of tasks of all messages that are sent."""
    found = []
    original = Cluster.start

    def start(self, graph, *args):
        found.append(len(graph))
        return original(self, graph, *args)

    monkeypatch.setattr(Cluster, "start", start)
    return found


def test_a_mapped_function_is_sent_with_the_call_that_needs_its_results(sent):
    parts, w = make_rows(5), np.linspace(0.0, 1.0, 5)
    scores_there = [rows.X @ w for rows in parts]
    serial = reference(parts)
    expected = serial.map_sum(_back, serial.map(_scores, w))[0]
    with cluster_here(2) as client:
        data = partitions(client, 5)
        scores = data.map(_scores, w)
        data.map(_scores, 2.0 * w)  # nobody asks
        w[:] = np.nan  # what the caller does later is nothing to it
        assert sent == []
        for _ in range(2):
            assert_array_equal(data.map_sum(_back, scores)[0], expected)
        assert_array_equal(np.concatenate(data.gather(scores)), np.concatenate(scores_there))
        assert len(sent) == 3


def test_a_worker_with_threads_gets_one_task(sent):
    with cluster_here(2, n_threads=3) as client:
        data = partitions(client, 8)
        data.gather(data.map(_n_rows, 0))
        sent.clear()
        assert len(set(data.gather(data.map(_thread, 0)))) > 2
        assert sent == [2]
        assert_same_bits(fit_partitions(clone(MODEL), data), serial_fit(clone(MODEL), 8))


def _thread(rows, own):
    time.sleep(0.02)
    return threading.get_ident()


def test_lost_results_are_computed_again(sent):
    parts, w = make_rows(5), np.linspace(0.0, 1.0, 5)
    serial = reference(parts)
    expected = serial.map_sum(_back, serial.map(_twice, serial.map(_scores, w)))[0]
    with cluster_here(2) as client:
        data = partitions(client, 5)
        scores = data.map(_scores, w)
        data.map_sum(_back, scores)
        tasks._CACHE.clear()
        twice = data.map(_twice, scores)  # of what is not there any more
        for _ in range(2):
            assert_array_equal(data.map_sum(_back, twice)[0], expected)
        assert len(sent) == 4
        del scores, twice
        data.map_sum(_count, 1)
        assert all(not cache for cache in tasks._CACHE.values())  # unreferenced results are deleted


def test_calls_whose_results_were_lost_are_always_sent(sent):
    parts, w = make_rows(5), np.linspace(0.0, 1.0, 5)
    serial = reference(parts)
    expected = serial.map_sum(_back, serial.map(_scores, w))[0]
    with cluster_here(2) as client:
        data = partitions(client, 5)
        scores = data.map(_scores, w)
        for _ in range(5):
            assert_array_equal(data.map_sum(_back, scores)[0], expected)
            tasks._CACHE.clear()  # as if the partitions had gone to the disk
        assert len(sent) == 6  # only the second call was sent in vain


def test_unreferenced_results_are_deleted_first():
    with cluster_here(1) as client:
        data = partitions(client, 2)
        scores = data.map(_scores, np.ones(5))
        data.map_sum(_back, scores)
        assert data.map_sum(_n_cached) == (2,)
        del scores
        assert data.map_sum(_n_cached) == (0,)


def _n_cached(rows):
    return (len(tasks._CACHE.get(rows, {})),)


def test_freed_memory_is_kept_only_while_tasks_are_under_way(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    kept = allocator._KeptMemory()
    said = []
    kept._set = lambda what, size: said.append((what, size))
    with kept, kept:
        during = dict(said)
        assert len(said) == 2
    assert min(during.values()) >= 2**25
    assert dict(said[2:]) == {-1: 65536, -3: 2**17}  # Dask's wish, and glibc's default
    for name, value in (("MALLOC_TRIM_THRESHOLD_", ""), ("MALLOC_MMAP_THRESHOLD_", "1000000")):
        with monkeypatch.context() as context:  # nobody has wished anything, or somebody knows better
            context.setenv(name, value)
            assert allocator._find_mallopt() is None


def _twice(rows, scores):
    return 2.0 * scores


# Parts ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 11, 16, 17, 33])
def test_groups_of_partitions_add_up_in_the_order_of_the_tree(n):
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


def test_work_is_shared_out_by_threads_where_the_data_are():
    assert assign_workers([["a"], ["b"], ["a"], ["b"]], {"a": 1, "b": 1}) == ["a", "b", "a", "b"]
    assert assign_workers([["a"]] * 4, {"a": 1, "b": 1}) == ["a", "a", "b", "b"]  # one that has joined
    assert assign_workers([["a"]] * 4, {"a": 3, "b": 1}) == ["a", "a", "a", "b"]
    assert assign_workers([["a", "b"]] * 2, {"a": 1, "b": 1}) == ["a", "b"]  # copies are used
    assert assign_workers([["gone"], []], {"a": 1}) == [None, None]
    assert assign_workers([["a"]], {}) == [None]
