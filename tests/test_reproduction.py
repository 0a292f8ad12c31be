"""The paper's experiments on a few rows, their claims, and the report; see also `test_reproduction_command`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data_set_files import write
from dropmargin.report import render_page
from made_up_experiment import COMMAND, HEADER, made_up_log, made_up_summary
from pages import assert_self_contained, words
from reproduction import amazon, explicit, published
from reproduction.experiments import EXPERIMENTS
from reproduction.harness import run_experiment
from reproduction.report import Chapter, chapter_of, reproduction_notes, reproduction_sections, reproduction_verdict
from reproduction.results_log import ResultsLog, ResultsLogError, read_log

# The experiments -----------------------------------------------------------------------------------------------------


def run(experiment, folder, data_home):
    """Return the log of a quick run."""
    return run_experiment(experiment, folder, quick=True, data_home=data_home, download=False, verbose=0)


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
    log = run(amazon.AMAZON, tmp_path / "results", shop)
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
    log = run(explicit.EXPLICIT, tmp_path / "results", shop)
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


def verdict_text(summary):
    return " ".join(summary.verdict)


# Amazon --------------------------------------------------------------------------------------------------------------

_FALLING = {0.0: 0.18, 0.5: 0.15, 0.9: 0.16, "Poisson": 0.17}


def amazon_summary(curves=None, cv_errors=None, form="amazon5k", domain="books", n_test=4_000):
    """Return the summary of curves by model; by default from .18 to .15, and .01 higher for MCF."""
    lines = []
    for model in published.LOSSES:
        above = 0.0 if model.startswith("Dropout") else 0.01
        errors = {noise: error + above for noise, error in _FALLING.items()} | (curves or {}).get(model, {})
        for noise, error in errors.items():
            cv_error = (cv_errors or {}).get(model, errors)[noise]
            key = {"form": form, "domain": domain, "model": model, "noise": noise}
            sizes = {"n_train": 2_000, "n_test": n_test, "n_features": 5_000}
            lines.append((key, {"error": error, "cv_error": cv_error, "C": 0.1} | sizes))
    return amazon.summarise(made_up_log(lines))


def test_amazon_claims_hold_for_curves_like_the_papers():
    summary = amazon_summary()
    assert all(claim.holds for claim in summary.claims)
    assert "Dropout-SVM has .180 without noise, .150 at its best rate, q = 0.5" in verdict_text(summary)
    assert "at 2 of 2 points" in verdict_text(summary)


LOGS = sorted((Path(__file__).parent.parent / "results").glob("*.jsonl"))


def a_chapter(header=None, **changed):
    return Chapter("made-up", made_up_summary(**changed), HEADER if header is None else header, 12)


def a_page(*chapters, missing=None):
    chapters = chapters or [a_chapter()]
    verdict, notes = reproduction_verdict(chapters), reproduction_notes(chapters, missing)
    return render_page("A report", verdict, reproduction_sections(chapters), notes)


# The page -------------------------------------------------------------------------------------------------------------


def test_page_is_self_contained_and_complete():
    page = a_page()
    assert_self_contained(page)
    text = words(page)
    assert "Of the claims that were checked, 1 of 2 holds." in text
    assert "1 of 2 claims hold. Made up" in text
    assert "Nothing agrees. Nothing was measured." in text
    for fact in ("Datanone", "12, which took 90.0 seconds", "7, 2", "python 3.11.0, dropmargin 0.0.1", COMMAND):
        assert fact in text
    assert "quick" not in text


# Figures as files, and logs -------------------------------------------------------------------------------------------


@pytest.mark.skipif(not LOGS, reason="there are no results of full runs")
def test_the_report_of_the_results_of_the_project():
    logs = [read_log(path) for path in LOGS]
    chapters = [chapter_of(EXPERIMENTS[log.header["experiment"]], log) for log in logs]
    page = a_page(*chapters)
    assert_self_contained(page)
    assert page.count("<svg") == sum(len(found.summary.charts) for found in chapters)
    for found in chapters:
        assert found.summary.claims
        assert found.summary.title in words(page)
