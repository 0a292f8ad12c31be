"""Runs an experiment: performs the tasks that are not in its results log yet."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reproduction.results_log import ResultsLog, Task, make_header, open_log
from reproduction.summary import Summary


@dataclass(frozen=True)
class RunConfig:
    """How an experiment is run.

    Parameters
    ----------
    log : ResultsLog
        The measurements so far. Later tasks may depend on them.
    quick : bool, default=False
        Whether to run the quick version, with fewer parameters or less data.
    seed : int, default=0
        Random seed.
    data_home : path-like, optional
        Folder of the data, as for `reproduction.datasets`.
    download : bool, default=True
        Whether missing data may be downloaded.
    cache : path-like, optional
        Folder in which image features are cached; None for no cache.
    n_jobs : int or None, default=None
        Number of threads. The results do not depend on it.
    verbose : int, default=1
        0 for no progress bar.
    """

    log: ResultsLog
    quick: bool = False
    seed: int = 0
    data_home: str | os.PathLike[str] | None = None
    download: bool = True
    cache: str | os.PathLike[str] | None = None
    n_jobs: int | None = None
    verbose: int = 1


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper.

    Parameters
    ----------
    name : str
        Its name on the command line.
    title : str
    tasks : callable
        Returns the tasks, in order, that can be defined from the measurements in the log. It is called again after they
        are done, until all tasks are done. It reads no data; the tasks do.
    summarise : callable
        Returns the `Summary` of a complete log.
    """

    name: str
    title: str
    tasks: Callable[[RunConfig], Sequence[Task]]
    summarise: Callable[[ResultsLog], Summary]


def run_experiment(
    experiment: Experiment,
    folder: str | os.PathLike[str],
    *,
    quick: bool = False,
    seed: int = 0,
    fresh: bool = False,
    data_home: str | os.PathLike[str] | None = None,
    download: bool = True,
    cache: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
    verbose: int = 1,
    notify: Callable[[str], None] = lambda text: None,
) -> ResultsLog:
    """Run the tasks of an experiment that are not done yet, and return its results log.

    Parameters
    ----------
    experiment : Experiment
    folder : path-like
        Folder of the results log.
    quick, seed, data_home, download, cache, n_jobs, verbose
        See `RunConfig`.
    fresh : bool, default=False
        Whether to delete earlier results first.
    notify : callable, optional
        Called with a line of text before each list of tasks: how many are done and how many remain.
    """
    header = make_header(experiment.name, quick=quick, seed=seed, threads=n_jobs or 1)
    log = open_log(folder, header, fresh)
    config = RunConfig(log, quick, seed, data_home, download, cache, n_jobs, verbose)
    while True:
        tasks = experiment.tasks(config)
        n_remaining = sum(log.get(task.key) is None for task in tasks)
        n_done = len(tasks) - n_remaining
        notify(f"{experiment.title}: {n_done} of {len(tasks)} measurements are in {log.path}, {n_remaining} to go")
        if not n_remaining:
            return log
        log.perform(tasks, experiment.name, verbose)
