"""Processes that are killed by a signal during a fit: workers, with and without a nanny, and the client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from distributed.core import Status
from numpy.testing import assert_array_equal
from sklearn.base import clone

from clusters import (
    PATIENCE,
    assert_same_bits,
    at_iteration,
    local_cluster,
    partitions,
    process_cluster,
    serial_fit,
)
from dropmargin import DropoutLogisticRegression
from dropmargin.dask import ClusterError, fit
from dropmargin.estimators.partition_fit import fit_partitions
from marks import says

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MODEL = DropoutLogisticRegression(C=0.1, tol=1e-3)


def kill_workers(client, n_workers, restart):
    """Kill some workers; their nannies start new ones only if ``restart``."""
    alive = [nanny for nanny in client.cluster.workers.values() if nanny.pid is not None]
    for nanny in alive[:n_workers]:
        if not restart:
            nanny.status = Status.closing_gracefully
        os.kill(nanny.pid, signal.SIGKILL)


def test_killed_workers_with_and_without_restart():
    expected = serial_fit(clone(MODEL), 5)
    with process_cluster(2) as client:
        for restart in (True, False):
            client.wait_for_workers(2, timeout=PATIENCE)
            monitor = at_iteration(2, lambda restart=restart: kill_workers(client, 1, restart))
            assert_same_bits(fit_partitions(clone(MODEL), partitions(client, 5), monitor=monitor), expected)
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


def test_a_task_that_kills_its_worker_is_tried_four_times(tmp_path):
    with process_cluster(2) as client:
        data = partitions(client, 5)  # all of 18 rows
        for number, n_deaths in enumerate((3, 100)):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            if n_deaths == 3:
                assert data.map_sum(die_at_first, str(folder), 3) == (90,)
            else:
                with pytest.raises(ClusterError, match=says("killed its worker 4 times", "memory")):
                    data.map_sum(die_at_first, str(folder), n_deaths)


_KILLED_CLIENT = """
import os, signal, sys
from clusters import local_cluster
from test_dask_kills import fit_with_checkpoint
from dropmargin.streaming.checkpoint import Log

write, count = Log.write, [0]

def write_and_die(self, *args):
    write(self, *args)
    count[0] += 1
    if count[0] == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

Log.write = write_and_die
with local_cluster(2) as client:
    fit_with_checkpoint(sys.argv[1])
"""


def fit_with_checkpoint(path, C=0.1, scale=1.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4)) * scale
    y = np.where(X @ rng.normal(size=4) + rng.normal(size=80) > 0, 1, 0)
    dX, dy = da.from_array(X, chunks=(20, 4)), da.from_array(y, chunks=20)
    return fit(DropoutLogisticRegression(C=C, tol=1e-3), dX, dy, checkpoint=path)


@pytest.mark.parametrize("n_results", [3, 8])
def test_the_fit_of_a_killed_client_is_resumed_on_another_cluster(n_results, tmp_path):
    path = tmp_path / "fit.checkpoint"
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parent / "src")])
    done = subprocess.run(
        [sys.executable, "-c", _KILLED_CLIENT, str(path), str(n_results)],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        timeout=5 * PATIENCE,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with local_cluster(3):
        with pytest.raises(ValueError, match="other parameters"):
            fit_with_checkpoint(path, C=0.2)
        with pytest.raises(ValueError, match="other data"):
            fit_with_checkpoint(path, scale=2.0)
        resumed = fit_with_checkpoint(path)
        expected = fit_with_checkpoint(None)
    assert_same_bits(resumed, expected)


def scores_of(rows, w):
    return rows.X @ w


def back_of(rows, scores):
    return (rows.X.T @ scores,)


def test_memory_stays_flat_over_a_thousand_passes():
    with process_cluster(1) as client:
        data = partitions(client, 4)
        resident = []
        w = np.ones(5)
        for number in range(1000):
            scores = data.map(scores_of, w)
            w = w / np.abs(w).max() + 1e-3 * data.map_sum(back_of, scores)[0]
            if number in (200, 999):
                resident.append(
                    (_resident("self"), *(_resident(nanny.pid) for nanny in client.cluster.workers.values()))
                )
                assert len(client.cluster.scheduler.tasks) < 20
        for before, after in zip(*resident, strict=True):
            assert after < before + 40e6  # a leak of one result per pass would be more
        assert_array_equal(np.isfinite(w), True)


def _resident(pid):
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc")
    time.sleep(0.1)
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
