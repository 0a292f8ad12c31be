"""``python -m reproduction``: resumes, survives interruptions, reports on what is there; with made-up experiments."""

from __future__ import annotations

import pytest

from command_line import run_script
from made_up_experiment import made_up_experiment
from pages import assert_self_contained
from reproduction import command
from reproduction import experiments as real
from reproduction.datasets import DatasetError


@pytest.fixture
def experiments(monkeypatch):
    """Put made-up experiments in place of the real ones, and note what they measure."""
    measured = []

    def use(**options_of):
        found = {name: made_up_experiment(name, measured=measured, **options) for name, options in options_of.items()}
        monkeypatch.setattr(real, "EXPERIMENTS", found)
        measured.clear()
        return measured

    return use


_HEAVY = """
import sys
from reproduction.command import main
assert main(["amazon", "--help"]) == 0
heavy = {"numpy", "scipy", "sklearn", "joblib", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""


def test_help_lists_the_experiments_and_imports_nothing_heavy():
    assert tuple(real.EXPERIMENTS) == command.NAMES
    text = run_script(_HEAVY)
    assert text.startswith("Usage: python -m reproduction ")
    assert "{amazon|explicit|cifar10|nightmare|all}" in text
    for option in ("--quick", "--seed", "--n-jobs", "--data", "--no-download", "--cache", "--results", "--html"):
        assert f"  {option} " in text
    for option in ("--figures", "--fresh", "--from-results", "--json", "--quiet", "--debug"):
        assert f"  {option} " in text


def test_runs_and_reports(reproduce, experiments, tmp_path):
    measured = experiments(amazon={})
    done = reproduce("amazon", "--html", "page.html", "--figures", "figures")
    assert measured == [("amazon", 0), ("amazon", 1)]
    assert "0 of 2 measurements are in results/amazon.jsonl, 2 to go" in done.err
    assert "Experiment amazon: of the claims 1 of 1 holds (2 measurements by dropmargin " in done.out
    assert "  holds          The errors rise: from 0.1" in done.out
    assert done.out.rstrip().endswith("results results/\nsaved page.html\nsaved figures/amazon-chart.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures", "page.html", "results"]
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert_self_contained(page)
    assert "Experiment amazon" in page
    assert "python -m reproduction amazon" in page


def test_an_interruption_keeps_what_was_measured_and_says_how_to_go_on(reproduce, experiments, tmp_path):
    measured = experiments(amazon={"n_tasks": 3, "fails_at": 2, "error": KeyboardInterrupt()})
    done = reproduce("amazon", "--html", "page.html", code=130)
    assert done.error == "interrupted"
    assert "is kept in results/amazon.jsonl; the same command goes on from there" in done.err
    assert len(measured) == 2
    assert not (tmp_path / "page.html").exists()
    measured = experiments(amazon={"n_tasks": 3})
    done = reproduce("amazon", "--html", "page.html")
    assert "2 of 3 measurements are in results/amazon.jsonl, 1 to go" in done.err
    assert measured == [("amazon", 2)]
    # A third run has nothing to do but the page.
    (tmp_path / "page.html").unlink()
    measured = experiments(amazon={"n_tasks": 3})
    reproduce("amazon", "--html", "page.html")
    assert measured == []
    assert (tmp_path / "page.html").exists()


def test_fresh_measures_again_and_an_interruption_says_to_leave_it_out(reproduce, experiments):
    experiments(amazon={})
    reproduce("amazon")
    experiments(amazon={"fails_at": 1, "error": KeyboardInterrupt()})
    assert "the same command, without --fresh, goes on" in reproduce("amazon", "--fresh", code=130).err
    measured = experiments(amazon={})
    assert "0 of 2 measurements" in reproduce("amazon", "--fresh").err
    assert len(measured) == 2


def test_of_all_one_may_fail_and_the_others_go_on(reproduce, experiments, tmp_path):
    error = DatasetError("mnist.gz is missing: get it and put it there.")
    measured = experiments(amazon={}, explicit={"fails_at": 0, "error": error}, nightmare={})
    done = reproduce("all", "--html", "page.html", code=1)
    assert [name for name, _ in measured] == ["amazon", "amazon", "nightmare", "nightmare"]
    assert done.error == "explicit: mnist.gz is missing: get it and put it there."
    assert done.err.splitlines()[-1].endswith(done.error)
    assert "Experiment amazon" in done.out
    assert "Experiment nightmare" in done.out
    assert "Not on this page: explicit. mnist.gz is missing" in (tmp_path / "page.html").read_text(encoding="utf-8")
    # When the data are there, only what failed is left.
    measured = experiments(amazon={}, explicit={}, nightmare={})
    reproduce("all", "--html", "page.html")
    assert [name for name, _ in measured] == ["explicit", "explicit"]


def test_from_results_runs_nothing_and_says_what_is_missing(reproduce, experiments, tmp_path):
    experiments(amazon={}, explicit={})
    reproduce("amazon", "--quiet")
    measured = experiments(amazon={}, explicit={})
    before = (tmp_path / "results" / "amazon.jsonl").read_bytes()
    done = reproduce("all", "--from-results", "--html", "page.html")
    assert measured == []
    assert "warning: no results of explicit: results/explicit.jsonl is not there." in done.err
    assert "Experiment amazon" in done.out
    assert "Not on this page: explicit." in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (tmp_path / "results" / "amazon.jsonl").read_bytes() == before


def test_json_has_claims_and_tables(reproduce, experiments):
    experiments(amazon={})
    found = reproduce("amazon", "--json", "--html", "page.html").json
    assert found["saved"] == ["page.html"]
    experiment = found["experiments"]["amazon"]
    assert experiment["measurements"] == 2
    assert experiment["claims"] == [{"claim": "The errors rise.", "holds": True, "evidence": "from 0.1"}]
    assert experiment["tables"][0]["rows"]["theirs"] == {"ours": [0.21, None], "published": [0.1999, 0.16]}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["amzon"], 2, "amzon"),
        ([], 2, "Missing argument"),
        (["amazon", "--from-results", "--fresh"], 2, "give one of the two"),
        (["amazon", "--seed", "-1"], 2, "--seed"),
        (["amazon", "--n-jobs", "0"], 2, "--n-jobs"),
        (["amazon", "--qick"], 2, "No such option"),
        (["amazon", "--html", "nowhere/page.html"], 1, "there is no folder"),
        (["amazon", "--html", "."], 2, "exists"),
        (["amazon", "--results", "file/results"], 1, "file is a file"),
        (["amazon", "--figures", "file"], 1, "file is a file"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(reproduce, experiments, tmp_path, arguments, code, message):
    measured = experiments(amazon={})
    (tmp_path / "file").write_text("")
    done = reproduce(*arguments, code=code)
    assert message in done.error
    assert measured == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
