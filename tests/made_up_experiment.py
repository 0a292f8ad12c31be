"""A made-up experiment with made-up numbers, for the tests of the report and of its command."""

from __future__ import annotations

from pathlib import Path

from reproduction.harness import Experiment
from reproduction.results_log import Measurement, ResultsLog, Task
from reproduction.summary import Chart, Claim, Comparison, Series, Summary

COMMAND = "python -m reproduction made-up --seed 7"
HEADER = {
    "format": 1,
    "experiment": "made-up",
    "quick": False,
    "seed": 7,
    "command": COMMAND,
    "threads": 2,
    "versions": {"python": "3.11.0", "dropmargin": "0.0.1"},
}


def made_up_chart(**changed):
    known = {
        "slug": "made-up",
        "title": "Made up",
        "caption": "Not measured.",
        "x_label": "rate",
        "y_label": "error",
        "series": [
            Series("ours", [0.0, 0.5, 0.9], [0.2, 0.15, 0.19], "ours"),
            Series("theirs", [0.0, 0.5, 0.9], [0.21, None, 0.18], "theirs"),
            Series("theirs, published", [0.0, 0.1, 0.2, 0.5, 0.9], [0.2, 0.19, None, 0.16, 0.17], "theirs", True),
        ],
    }
    return Chart(**(known | changed))


def made_up_summary(**changed):
    known = {
        "title": "A made-up experiment (Figure 0)",
        "verdict": ["Nothing agrees.", "Nothing was measured."],
        "charts": [made_up_chart()],
        "comparisons": [
            Comparison(
                "Made up: error",
                ["q = 0", "q = 0.5"],
                {"ours": ([0.2, 0.15], [None, None]), "theirs": ([0.21, None], [0.1999, 0.16])},
            )
        ],
        "claims": [Claim("Ours is lower.", True, ".200 against .210"), Claim("It is much lower.", False, "1.0 points")],
        "settings": {"Data": "none"},
        "seconds": 90.0,
    }
    return Summary(**(known | changed))


def made_up_experiment(name="made-up", n_tasks=2, fails_at=None, error=None, measured=None):
    """Return an experiment that records its measurements; task ``fails_at``, if given, raises ``error``."""

    def measure(i):
        if i == fails_at:
            raise error
        if measured is not None:
            measured.append((name, i))
        return {"error": 0.1 * (i + 1)}

    def tasks(config):
        return [Task({"i": i}, lambda i=i: measure(i)) for i in range(n_tasks)]

    def summarise(log):
        errors = [log.get({"i": i}).result["error"] for i in range(n_tasks)]
        return made_up_summary(
            title=f"Experiment {name}",
            charts=[made_up_chart(slug=f"{name}-chart", series=[Series("ours", range(n_tasks), errors, "ours")])],
            claims=[Claim("The errors rise.", errors == sorted(errors), f"from {errors[0]:.1f}")],
            seconds=log.seconds,
        )

    return Experiment(name, f"Experiment {name}", tasks, summarise)


def made_up_log(measurements, *, quick=False):
    """Return a results log without a file, with these pairs of a key and a result."""
    lines = [Measurement(key, result, 1.0) for key, result in measurements]
    return ResultsLog(Path("made-up.jsonl"), HEADER | {"quick": quick}, lines)
