"""Workers that are killed by a signal during a fit, with and without a nanny."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from distributed.core import Status
from sklearn.base import clone

from clusters import PATIENCE, assert_same_optimum, at_iteration, partitions, process_cluster, serial_fit
from dropmargin import DropoutLogisticRegression
from dropmargin.dask import ClusterError
from dropmargin.estimators.partition_fit import fit_partitions
from marks import says

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MODEL = DropoutLogisticRegression(C=0.1, tol=1e-10)


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
