"""The paper's experiments on a few rows: run, interrupted, resumed, and summarised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from data_set_files import SHARED, write
from reproduction import amazon, explicit, published
from reproduction.harness import run_experiment
from reproduction.report import chapter_of
from reproduction.results_log import ResultsLog, ResultsLogError, Task

_PUBLISHED = SHARED.parent / "PUBLISHED.md"


# The published numbers -----------------------------------------------------------------------------------------------


def published_text():
    if not _PUBLISHED.exists():
        pytest.skip("the notes on the published numbers are not there")
    return _PUBLISHED.read_text(encoding="utf-8")


def rows_below(heading):
    """Return the cells of all rows of the tables below a heading, without separator lines."""
    section = published_text().partition(f"\n## {heading}")[2].partition("\n## ")[0]
    assert section, heading
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return rows[1:]


def name_of(text):
    """Return our name of a method in the tables."""
    text = text.removesuffix(" (from MCF)")
    return f"MCF-{text.removeprefix('MCF ').capitalize()}" if text.startswith("MCF ") else text


def error_of(text):
    return None if text == "> .5" else float(text)


def test_published_errors_of_amazon():
    found = {}
    for domain, method, *errors in rows_below("Amazon reviews"):
        found.setdefault(domain, {})[name_of(method)] = tuple(map(error_of, errors))
    assert found == published.AMAZON


# The experiments -----------------------------------------------------------------------------------------------------


class Watched:
    """An experiment that records its measurements and is interrupted at number ``stop``, if given."""

    def __init__(self, experiment, folder, stop=None):
        self.made = []
        self._experiment, self._folder, self._stop = experiment, folder, stop

    def run(self, data_home):
        watched = replace(self._experiment, tasks=self._tasks)
        return run_experiment(watched, self._folder, quick=True, data_home=data_home, download=False, verbose=0)

    def _tasks(self, config):
        return [Task(task.key, lambda task=task: self._measure(task)) for task in self._experiment.tasks(config)]

    def _measure(self, task):
        if len(self.made) == self._stop:
            raise KeyboardInterrupt
        self.made.append(task.key)
        return task.measure()


def run_in_parts(experiment, folder, stop, data_home=None):
    """Run an experiment with one interrupt, check that nothing is measured twice, and return its log."""
    results = folder / "results"
    first, second, third = (Watched(experiment, results, stop=number) for number in (stop, None, None))
    with pytest.raises(KeyboardInterrupt):
        first.run(data_home)
    log = second.run(data_home)
    assert [measurement.key for measurement in log] == first.made + second.made
    assert len(first.made) == stop < len(log)
    again = third.run(data_home)
    assert third.made == []
    assert [vars(measurement) for measurement in again] == [vars(measurement) for measurement in log]
    return again


def check_summary(experiment, log):
    """Check that a summary is complete, and return it."""
    summary = experiment.summarise(log)
    assert summary.title == experiment.title
    assert summary.seconds == log.seconds
    assert summary.comparisons
    assert all([summary.verdict, summary.claims, summary.settings])
    for text in [*summary.verdict, *summary.settings.values(), *(claim.evidence for claim in summary.claims)]:
        assert text
        assert "nan" not in text
        assert "None" not in text
    assert len({claim.text for claim in summary.claims}) == len(summary.claims)
    for comparison in summary.comparisons:
        for ours, theirs in comparison.rows.values():
            assert len(ours) == len(theirs) == len(comparison.columns)
            assert all(0.0 <= error <= 1.0 for error in ours)
    for chart in summary.charts:
        for series in chart.series:
            assert len(series.x) == len(series.y)
    # A log without its last line is an error that says what to do, not an incomplete summary.
    short = ResultsLog(log.path, log.header, list(log)[:-1])
    with pytest.raises(ResultsLogError, match="no report can be made"):
        chapter_of(experiment, short)
    return summary


def reviews(n_samples, seed):
    """Return random reviews as svmlight text: words 0 to 4 are positive, 5 to 9 negative, the others neutral."""
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(n_samples):
        rates = np.full(30, 0.2)
        rates[5 * (i % 2) : 5 * (i % 2) + 5] = 0.7
        counts = rng.poisson(rates)
        words = " ".join(f"{word}:{counts[word]}" for word in np.flatnonzero(counts))
        lines.append(f"{'-+'[i % 2 == 0]}1 {words}\n")
    return "".join(lines)


@pytest.fixture
def shop(tmp_path):
    """Return a data folder with small files in the format of amazon5k."""
    for seed, domain in enumerate(("books", "kitchen")):
        for part, n_samples in (("train", 60), ("test", 80)):
            text = reviews(n_samples, 10 * seed + (part == "test"))
            write(tmp_path / "data" / "amazon5k" / f"{domain}_{part}.svmlight.gz", text)
    return tmp_path / "data"


def test_amazon_end_to_end(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(amazon, "_QUICK_RATES", (0.0, 0.5))
    monkeypatch.setattr(amazon, "_QUICK_CS", (0.01, 0.1))
    log = run_in_parts(amazon.AMAZON, tmp_path, stop=7, data_home=shop)
    assert len(log) == 2 * len(published.LOSSES) * 3
    assert {m.result["n_train"] for m in log} == {60}
    assert {m.result["n_test"] for m in log} == {80}
    for m in log:
        assert m.result["papers_c"] == published.papers_c(m.key["model"], m.result["C"])
        assert m.result["error"] * 80 == pytest.approx(round(m.result["error"] * 80))
    summary = check_summary(amazon.AMAZON, log)
    assert [chart.slug for chart in summary.charts] == ["amazon-amazon5k-books", "amazon-amazon5k-kitchen"]
    for domain, comparison in zip(amazon.DOMAINS, summary.comparisons, strict=True):
        for model, (ours, theirs) in comparison.rows.items():
            keys = [{"form": "amazon5k", "domain": domain, "model": model, "noise": q} for q in (0.0, 0.5, "Poisson")]
            assert ours == [log[key].result["error"] for key in keys]
            if model in published.AMAZON[domain]:
                assert theirs == [published.AMAZON[domain][model][i] for i in (0, 5, 10)]
            else:
                assert theirs == [None] * 3
    assert "3-fold" in summary.settings["Choice of C"]
    assert "60 training and 80 test documents, 5,000 features" in summary.settings["Data"]


def test_explicit_end_to_end(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(explicit, "_QUICK_COPIES", (1, 2, 4))
    monkeypatch.setattr(explicit, "_CS", (0.01, 0.1))
    monkeypatch.setattr(explicit, "_N_DRAWS", {1: 3, 2: 2})
    log = run_in_parts(explicit.EXPLICIT, tmp_path, stop=2, data_home=shop)
    found = {m.key["copies"]: m.result for m in log}
    assert list(found) == [0, 1, 2, 4, "infinity"]
    assert [len(result["errors"]) for result in found.values()] == [1, 3, 2, 1, 1]
    for result in found.values():
        assert result["fit_seconds"] > 0.0
        assert result["C"] == (0.01, 0.1)[int(np.argmin(result["cv_errors"]))]
    summary = check_summary(explicit.EXPLICIT, log)
    (comparison,) = summary.comparisons
    ours, theirs = comparison.rows["SVM"]
    assert ours == [np.mean(result["errors"]) for result in found.values()]
    assert theirs == [published.EXPLICIT_MCF[n] for n in (0, 1, 2, 4, float("inf"))]
    error, time = summary.charts
    assert error.x_names == ["1", "2", "4", "∞"]
    assert error.series[0].y == ours[1:4]
    assert time.series[0].y == [found[n]["fit_seconds"] for n in (1, 2, 4)]
    assert "1 (3), 2 (2) copies" in summary.settings["SVM on copies"]
    _, close, best, fast = summary.claims
    assert close.holds == (ours[-1] <= ours[-2] + 0.004)
    assert best.holds == (ours[-1] <= min(ours[:-1]))
    assert fast.holds == (50.0 * found["infinity"]["fit_seconds"] <= found[4]["fit_seconds"])
