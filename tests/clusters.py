"""Small Dask clusters for the tests, and data on them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import dask
import numpy as np
from distributed import Client, LocalCluster
from numpy.testing import assert_array_equal

from backends import reference
from dropmargin.dask import DaskPartitions
from dropmargin.data import Rows
from dropmargin.estimators.partition_fit import fit_partitions

# Long enough for a machine with much else to do; a hang is found by the tests' own time limits.
PATIENCE = 100.0
_TESTS = Path(__file__).parent


@contextmanager
def cluster_here(n_workers, n_threads=1, **options):
    """Yield the client of a cluster in this process."""
    with (
        dask.config.set({"distributed.worker.memory.target": False, "distributed.scheduler.allowed-failures": 3}),
        LocalCluster(
            n_workers=n_workers, threads_per_worker=n_threads, processes=False, dashboard_address=":0", **options
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def cluster_of_processes(n_workers, **options):
    """Yield the client of a cluster whose workers are processes that know the tests' modules."""
    paths = os.pathsep.join([str(_TESTS), str(_TESTS.parent / "src")])
    with (
        # A worker that is killed again before it is back would be taken for one that never comes.
        dask.config.set({"distributed.deploy.lost-worker-timeout": f"{6 * PATIENCE:.0f}s"}),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            env={"PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},
            **options,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@cache
def make_rows(n_parts, n_rows=90, n_features=5):
    """Return labelled rows in parts, always the same."""
    rng = np.random.default_rng(n_parts)
    X = rng.normal(size=(n_rows, n_features))
    y = np.where(X @ rng.normal(size=n_features) + rng.normal(size=n_rows) > 0, "yes", "no")
    edges = np.array_split(np.arange(n_rows), n_parts)
    return [Rows(X[own], y[own]) for own in edges]


def load(n_parts, number):
    """Return one part: how a worker loads it, and loads it again."""
    return make_rows(n_parts)[number]


def partitions(client, n_parts, timeout=PATIENCE):
    """Return partitions that the workers load."""
    parts = [dask.delayed(load, pure=False)(n_parts, i) for i in range(n_parts)]
    return DaskPartitions(client, client.compute(parts, sync=False), timeout)


def serial_fit(estimator, n_parts):
    """Return the estimator, fitted in this process, one part after the other."""
    return fit_partitions(estimator, reference(make_rows(n_parts)))


def assert_same_bits(model, expected):
    """Check that two fits have taken the same way to the same end."""
    assert_array_equal(model.coef_, expected.coef_)
    assert_array_equal(model.intercept_, expected.intercept_)
    assert model.history_ == expected.history_


def at_iteration(number, action):
    """Return a monitor that does something once, after some iterations."""
    seen = []

    def monitor(entry):
        seen.append(entry)
        if len(seen) == number:
            action()

    monitor.seen = seen
    return monitor
