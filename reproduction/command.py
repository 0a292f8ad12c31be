"""``python -m reproduction EXPERIMENT``: runs the paper's experiments and reports them with the published numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from dropmargin.cli.options import N_JOBS, SEED
from dropmargin.cli.program import FAILURE, SUCCESS, Console, check_files, command, error_message, run_program

if TYPE_CHECKING:
    from reproduction.harness import Experiment
    from reproduction.report import Chapter
    from reproduction.results_log import ResultsLog

# Modules that import NumPy are imported where they are used, so that --help is fast.
#: The keys of `reproduction.experiments.EXPERIMENTS`.
NAMES = ("amazon", "explicit", "cifar10", "nightmare")
_ALL = "all"


_PARAMS = [
    click.argument("experiment", type=click.Choice([*NAMES, _ALL])),
    click.option("--quick", is_flag=True, help="Minutes instead of hours: fewer settings or less data."),
    SEED,
    N_JOBS,
    click.option("--data", metavar="DIR", help="Folder of the data sets (default: $DROPMARGIN_DATA, or the cache)."),
    click.option("--no-download", is_flag=True, help="Download nothing: missing data are an error."),
    click.option("--cache", metavar="DIR", help="Folder of cached image features (default: the user's cache; 2 GB)."),
    click.option("--results", default="results", metavar="DIR", help="Folder of the measurements."),
    click.option("--html", metavar="FILE", help="Write the report; an existing one is replaced."),
    click.option("--figures", metavar="DIR", help="Write each figure as an SVG file."),
    click.option("--fresh", is_flag=True, help="Delete earlier measurements and start anew."),
    click.option("--from-results", is_flag=True, help="Report on the measurements in --results, and run nothing."),
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return its exit code."""
    return run_program(run, argv, "python -m reproduction")


@command(*_PARAMS)
def run(options: SimpleNamespace, console: Console) -> int:
    """Run the paper's EXPERIMENT, beside the published numbers: Figure 2, Figure 3, Table 2, Figure 4, or all."""
    if options.from_results and options.fresh:
        raise click.UsageError("--from-results runs nothing and --fresh runs all anew: give one of the two")
    from reproduction.results_log import log_path

    if options.html is not None:
        logs = [log_path(options.results, name, quick) for name in NAMES for quick in (False, True)]
        check_files([str(log) for log in logs if log.exists()], {"--html": options.html}, force=True)
    for folder in (options.figures, None if options.from_results else options.results):
        if folder is not None:
            _check_folder(folder)
    from reproduction.experiments import EXPERIMENTS

    names = list(EXPERIMENTS) if options.experiment == _ALL else [options.experiment]
    chapters, missing, failed = _collect([EXPERIMENTS[name] for name in names], options, console)
    if chapters:
        _report(chapters, missing | failed, options, console)
    for name, why in failed.items():
        console.error(f"{name}: {why}")
    return FAILURE if failed else SUCCESS


def _collect(
    experiments: list[Experiment], options: SimpleNamespace, console: Console
) -> tuple[list[Chapter], dict[str, str], dict[str, str]]:
    """Return the chapters of the report, and the reasons of experiments without results and of failed ones by name.

    If one of several experiments fails, the others are still run. The error of a single experiment is raised.
    """
    from reproduction.report import chapter_of
    from reproduction.results_log import read_log

    chapters: list[Chapter] = []
    missing, failed = {}, {}
    for experiment in experiments:
        path = _path(experiment, options)
        if options.from_results and not path.exists():
            missing[experiment.name] = f"{path} is not there{_other_form(experiment, options)}."
            continue
        try:
            log = read_log(path) if options.from_results else _measure(experiment, options, console)
            chapters.append(chapter_of(experiment, log))
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


def _measure(experiment: Experiment, options: SimpleNamespace, console: Console) -> ResultsLog:
    """Run the tasks that are not done yet, and return the results log."""
    from reproduction.datasets.folder import cache_folder
    from reproduction.harness import run_experiment

    try:
        return run_experiment(
            experiment,
            options.results,
            quick=options.quick,
            seed=options.seed,
            fresh=options.fresh,
            data_home=options.data,
            download=not options.no_download,
            cache=cache_folder() / "features" if options.cache is None else options.cache,
            n_jobs=options.n_jobs,
            verbose=0 if console.quiet else 1,
            notify=console.note,
        )
    except KeyboardInterrupt:
        path = _path(experiment, options)
        again = "the same command, without --fresh," if options.fresh else "the same command"
        if path.exists():
            console.warn(f"what was measured so far is kept in {path}; {again} goes on from there")
        raise


def _path(experiment: Experiment, options: SimpleNamespace) -> Path:
    from reproduction.results_log import log_path

    return log_path(options.results, experiment.name, options.quick)


def _other_form(experiment: Experiment, options: SimpleNamespace) -> str:
    """Return which option reads the results of the other form of an experiment, if there are some."""
    from reproduction.results_log import log_path

    if not log_path(options.results, experiment.name, not options.quick).exists():
        return ""
    return " (but those of the full run are: leave out --quick)" if options.quick else " (but quick ones are: --quick)"


def _check_folder(folder: str) -> None:
    """Raise an error, before any work is done, if a folder can neither be created nor written to."""
    found = Path(os.path.abspath(folder))
    while not found.exists() and found != found.parent:
        found = found.parent
    if not found.is_dir():
        raise NotADirectoryError(20, f"cannot write there: {found} is a file", folder)
    if not os.access(found, os.W_OK | os.X_OK):
        raise PermissionError(13, f"cannot write there: no permission to write in {found}", folder)


# The report ----------------------------------------------------------------------------------------------------------


def _report(chapters: list[Chapter], missing: dict[str, str], options: SimpleNamespace, console: Console) -> None:
    """Write the page and the figures, and print the claims."""
    from dropmargin.report import write_page
    from reproduction.report import (
        TITLE,
        reproduction_notes,
        reproduction_sections,
        reproduction_verdict,
        write_figures,
    )

    saved = []
    if options.html is not None:
        notes = reproduction_notes(chapters, missing)
        write_page(options.html, TITLE, reproduction_verdict(chapters), reproduction_sections(chapters), notes)
        saved.append(options.html)
    if options.figures is not None:
        saved += map(str, write_figures(options.figures, chapters))
    facts = {
        "command": "reproduction",
        "experiments": {chapter.name: _facts(chapter) for chapter in chapters},
        "missing": missing,
        "results": options.results,
        "saved": saved,
    }
    kept = [f"results {os.path.join(options.results, '')}"] if not options.from_results else []
    where = "\n".join([*kept, *(f"saved {path}" for path in saved)])
    console.result(facts, "\n\n".join([*map(_text, chapters), *([where] if where else [])]))


def _text(chapter: Chapter) -> str:
    from reproduction.report import count_text, duration_text, result_text
    from reproduction.results_log import version_of

    summary, version = chapter.summary, version_of(chapter.header)
    took = f"{chapter.n_measurements} measurements by dropmargin {version}, {duration_text(summary.seconds)}"
    lines = [f"{summary.title}: of the claims {count_text(summary.claims)} ({took})"]
    lines += [
        f"  {result_text(claim).ljust(13)}  {claim.text.rstrip('.')}: {claim.evidence}" for claim in summary.claims
    ]
    return "\n".join(lines)


def _facts(chapter: Chapter) -> dict[str, Any]:
    from reproduction.results_log import version_of

    summary = chapter.summary
    return {
        "title": summary.title,
        "quick": chapter.quick,
        "version": version_of(chapter.header),
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
