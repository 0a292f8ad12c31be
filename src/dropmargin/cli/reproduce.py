"""``dropmargin reproduce EXPERIMENT``: the paper's experiments on real data, and a report beside what was published."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError

if TYPE_CHECKING:
    from dropmargin.report.reproduction import Chapter
    from dropmargin.reproduction import Experiment

#: The keys of `dropmargin.reproduction.EXPERIMENTS`, without the import of it.
NAMES = ("amazon", "explicit", "cifar10", "nightmare")
_ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("experiment", choices=(*NAMES, _ALL), help="Figure 2, Figure 3, Table 2 and Figure 4 of the paper, or all")
    add("--quick", action="store_true", help="minutes instead of hours: fewer settings or less data")
    add("--seed", type=shared.seed_of, default=0, metavar="N", help="of all that is random (default: 0)")
    add(
        "--n-jobs",
        type=shared.n_jobs_of,
        metavar="N",
        help="threads, -1 for all; the errors are the same, the times are not",
    )
    group = parser.add_argument_group("data")
    add = group.add_argument
    add("--data", metavar="DIR", help="where the data sets are (default: $DROPMARGIN_DATA, or the user's cache)")
    add("--no-download", action="store_true", help="fetch nothing: what is not there is an error")
    add("--cache", metavar="DIR", help="where features of images are kept (default: the user's cache; 2 GB)")
    group = parser.add_argument_group("results")
    add = group.add_argument
    add("--results", default="results", metavar="DIR", help="where measurements are kept (default: results)")
    add("--html", metavar="FILE", help="write the report, a page which needs no network")
    add("--figures", metavar="DIR", help="write each figure as an SVG file")
    add("--fresh", action="store_true", help="throw away what was measured before, and start anew")
    add("--from-results", action="store_true", help="report on what is in --results, and run nothing")


def run(options: argparse.Namespace, console: Console) -> int:
    """Run what is left of the experiments, and say what came out."""
    if options.from_results and options.fresh:
        raise UsageError("--from-results runs nothing and --fresh runs all anew: give one of the two")
    if options.html is not None:
        from dropmargin.reproduction import book_path

        books = [book_path(options.results, name, quick) for name in NAMES for quick in (False, True)]
        shared.check_can_write("--html", options.html, map(str, books))
    for folder in (options.figures, None if options.from_results else options.results):
        if folder is not None:
            _check_folder(folder)
    from dropmargin import reproduction
    from dropmargin.cli.main import FAILURE, SUCCESS

    names = list(reproduction.EXPERIMENTS) if options.experiment == _ALL else [options.experiment]
    chapters, missing, failed = _collect([reproduction.EXPERIMENTS[name] for name in names], options, console)
    if chapters:
        _report(chapters, missing | failed, options, console)
    for name, why in failed.items():
        console.error(f"{name}: {why}")
    return FAILURE if failed else SUCCESS


def _collect(
    experiments: list[Experiment], options: argparse.Namespace, console: Console
) -> tuple[list[Chapter], dict[str, str], dict[str, str]]:
    """Return the chapters of the report, which experiments have no results yet, and which have failed, and why.

    Of several experiments one may fail, and the others go on. The error of a single one is that of the command.
    """
    from dropmargin.cli.main import error_message
    from dropmargin.report.reproduction import chapter_of
    from dropmargin.reproduction import read_book

    chapters: list[Chapter] = []
    missing, failed = {}, {}
    for experiment in experiments:
        path = _path(experiment, options)
        if options.from_results and not path.exists():
            missing[experiment.name] = f"{path} is not there{_other_form(experiment, options)}."
            continue
        try:
            book = read_book(path) if options.from_results else _measure(experiment, options, console)
            chapters.append(chapter_of(experiment, book))
        except (ValueError, OSError, ImportError, MemoryError) as error:
            if len(experiments) == 1:
                raise
            failed[experiment.name] = error_message(error)
            console.note(f"{experiment.name} has failed, the others go on")
    if options.from_results and not chapters and not failed:
        raise FileNotFoundError(f"there are no results to report on: {' '.join(missing.values())}")
    for name, why in missing.items():
        console.warn(f"no results of {name}: {why}")
    return chapters, missing, failed


def _measure(experiment: Experiment, options: argparse.Namespace, console: Console) -> Any:
    """Make the measurements that are left, and return the lab book."""
    from dropmargin.datasets.folder import cache_folder
    from dropmargin.reproduction import run_experiment

    try:
        return run_experiment(
            experiment,
            options.results,
            quick=options.quick,
            seed=options.seed,
            fresh=options.fresh,
            command=_command(experiment.name, options),
            data_home=options.data,
            download=not options.no_download,
            cache=cache_folder() / "features" if options.cache is None else options.cache,
            n_jobs=options.n_jobs,
            verbose=0 if console.quiet else 1,
            say=console.note,
        )
    except KeyboardInterrupt:
        path = _path(experiment, options)
        again = "the same command, without --fresh," if options.fresh else "the same command"
        if path.exists():
            console.warn(f"what was measured so far is kept in {path}; {again} goes on from there")
        raise


def _path(experiment: Experiment, options: argparse.Namespace) -> Path:
    from dropmargin.reproduction import book_path

    return book_path(options.results, experiment.name, options.quick)


def _other_form(experiment: Experiment, options: argparse.Namespace) -> str:
    """Say how to get at the results of the other form of an experiment, if there are some."""
    from dropmargin.reproduction import book_path

    if not book_path(options.results, experiment.name, not options.quick).exists():
        return ""
    return " (but those of the full run are: leave out --quick)" if options.quick else " (but quick ones are: --quick)"


def _command(name: str, options: argparse.Namespace) -> str:
    """Return the command that makes a lab book anew: with what decides the numbers, without folders of this machine."""
    words = ["dropmargin", "reproduce", name]
    words += ["--quick"] if options.quick else []
    return " ".join(words + ([f"--seed {options.seed}"] if options.seed else []))


def _check_folder(folder: str) -> None:
    """Refuse a folder that can neither be made nor written into, before any work is done."""
    found = Path(os.path.abspath(folder))
    while not found.exists() and found != found.parent:
        found = found.parent
    if not found.is_dir():
        raise NotADirectoryError(20, f"cannot write there: {found} is a file", folder)
    if not os.access(found, os.W_OK | os.X_OK):
        raise PermissionError(13, f"cannot write there: no permission to write in {found}", folder)


# What came out ------------------------------------------------------------------------------------------------------


def _report(chapters: list[Chapter], missing: dict[str, str], options: argparse.Namespace, console: Console) -> None:
    """Write the page and the figures, and print the claims."""
    from dropmargin.report import write_page
    from dropmargin.report.reproduction import TITLE, reproduction_page, write_figures

    saved = []
    if options.html is not None:
        write_page(options.html, TITLE, reproduction_page(chapters, missing))
        saved.append(options.html)
    if options.figures is not None:
        saved += map(str, write_figures(options.figures, chapters))
    facts = {
        "command": "reproduce",
        "experiments": {chapter.name: _facts(chapter) for chapter in chapters},
        "missing": missing,
        "results": options.results,
        "saved": saved,
    }
    books = [f"results {os.path.join(options.results, '')}"] if not options.from_results else []
    where = "\n".join([*books, *(f"saved {path}" for path in saved)])
    console.result(facts, "\n\n".join([*map(_text, chapters), *([where] if where else [])]))


def _text(chapter: Chapter) -> str:
    from dropmargin.report.reproduction import count_text, duration_text, result_text

    summary = chapter.summary
    took = f"{chapter.n_measurements} measurements, {duration_text(summary.seconds)}"
    lines = [f"{summary.title}: of the claims {count_text(summary.claims)} ({took})"]
    lines += [
        f"  {result_text(claim).ljust(13)}  {claim.text.rstrip('.')}: {claim.evidence}" for claim in summary.claims
    ]
    return "\n".join(lines)


def _facts(chapter: Chapter) -> dict[str, Any]:
    summary = chapter.summary
    return {
        "title": summary.title,
        "quick": chapter.quick,
        "measurements": chapter.n_measurements,
        "seconds": summary.seconds,
        "verdict": summary.verdict,
        "claims": [{"claim": one.text, "holds": one.holds, "evidence": one.evidence} for one in summary.claims],
        "tables": [
            {
                "caption": table.caption,
                "columns": table.columns,
                "rows": {name: {"ours": ours, "published": theirs} for name, (ours, theirs) in table.rows.items()},
            }
            for table in summary.comparisons
        ],
    }
