"""One harness for all experiments: a list of tasks, a lab book, a summary."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dropmargin.reproduction.labbook import LabBook, Task, header_of, open_book
from dropmargin.reproduction.summary import Summary


@dataclass(frozen=True)
class Lab:
    """Where and how an experiment is run.

    Parameters
    ----------
    book : LabBook
        What was measured so far. A task may look up what earlier tasks have found.
    quick : bool
        Minutes, on a part of the data, instead of the full experiment.
    seed : int
    data_home : path-like, optional
        Where the data are, as for `dropmargin.datasets`.
    download : bool
        Whether data that are not there may be fetched.
    cache : path-like, optional
        Where features of images, which take minutes to compute, are kept; ``None`` to keep none.
    n_jobs : int or None
        Threads; they do not change the results.
    verbose : int
        0 for no progress bar.
    """

    book: LabBook
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
        What it is called on the command line.
    title : str
    tasks : callable
        Returns the measurements to be made, in order, as far as they are known by what is in the book: it is asked
        again when those are made. No data are read before the first of them is made.
    summarise : callable
        Returns what a book says, beside what was published.
    """

    name: str
    title: str
    tasks: Callable[[Lab], Sequence[Task]]
    summarise: Callable[[LabBook], Summary]


def run_experiment(
    experiment: Experiment,
    folder: str | os.PathLike[str],
    *,
    quick: bool = False,
    seed: int = 0,
    fresh: bool = False,
    command: str = "",
    data_home: str | os.PathLike[str] | None = None,
    download: bool = True,
    cache: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
    verbose: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> LabBook:
    """Run an experiment, or what is left of it, and return its book.

    Parameters
    ----------
    experiment : Experiment
    folder : path-like
        Where its book is kept.
    quick, seed, data_home, download, cache, n_jobs, verbose
        See `Lab`.
    fresh : bool
        Whether to throw away what was measured before.
    command : str
        What was typed, for the book.
    say : callable
        Is told, a line at a time, how much there is to do.
    """
    header = header_of(experiment.name, quick=quick, seed=seed, command=command, threads=n_jobs or 1)
    book = open_book(folder, header, fresh)
    lab = Lab(book, quick, seed, data_home, download, cache, n_jobs, verbose)
    while True:
        tasks = experiment.tasks(lab)
        to_go = sum(book.get(task.key) is None for task in tasks)
        done = len(tasks) - to_go
        say(f"{experiment.title}: {done} of {len(tasks)} measurements are in {book.path}, {to_go} to go")
        if not to_go:
            return book
        book.perform(tasks, experiment.name, verbose)
