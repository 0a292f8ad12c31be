"""Small Dask clusters for the tests, and data on them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import dask
import numpy as np
from distributed import Client, LocalCluster
from numpy.testing import assert_allclose

from backends import reference
from dropmargin.dask.partitions import DaskPartitions
from dropmargin.data import Rows
from dropmargin.estimators.fitting import fit_partitions

# Long enough for a machine with much other work. The tests have time limits of their own, so that a hang is a failure.
PATIENCE = 100.0
_TESTS = Path(__file__).parent


@contextmanager
def local_cluster(n_workers, n_threads=1):
    """Yield the client of a cluster in this process."""
    with (
        dask.config.set({"distributed.worker.memory.target": False, "distributed.scheduler.allowed-failures": 3}),
        LocalCluster(
            n_workers=n_workers, threads_per_worker=n_threads, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def process_cluster(n_workers):
    """Yield the client of a cluster whose workers are processes that can import the tests' modules."""
    paths = os.pathsep.join([str(_TESTS), str(_TESTS.parent / "src")])
    with (
        # Dask gives up a worker that does not come back in this time; some tests kill a worker several times.
        dask.config.set({"distributed.deploy.lost-worker-timeout": f"{6 * PATIENCE:.0f}s"}),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            env={"PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},
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
    return [Rows(X[own], y[own], None, k) for k, own in enumerate(np.array_split(np.arange(n_rows), n_parts))]


def load(n_parts, number):
    """Return one part, as a worker loads it."""
    return make_rows(n_parts)[number]


def partitions(client, n_parts, timeout=PATIENCE):
    """Return partitions that the workers load."""
    parts = [dask.delayed(load, pure=False)(n_parts, i) for i in range(n_parts)]
    return DaskPartitions(client, client.compute(parts, sync=False), timeout)


def serial_fit(estimator, n_parts):
    """Return the estimator, fitted in this process, one part after the other."""
    return fit_partitions(estimator, reference(make_rows(n_parts)))


def assert_same_optimum(model, expected):
    assert_allclose(model.coef_, expected.coef_, atol=1e-6)
    assert_allclose(model.intercept_, expected.intercept_, atol=1e-6)


def at_iteration(number, action):
    """Return a monitor that calls ``action`` once, after some iterations, and has all iterations in ``seen``."""
    seen = []

    def monitor(entry):
        seen.append(entry)
        if len(seen) == number:
            action()

    monitor.seen = seen
    return monitor
