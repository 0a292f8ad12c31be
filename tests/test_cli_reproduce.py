"""``dropmargin reproduce``: runs what is left, survives interruptions, reports on what is there; all made up."""

from __future__ import annotations

import os

import pytest

from dropmargin import reproduction
from dropmargin.cli import reproduce
from dropmargin.cli.main import make_parser
from dropmargin.datasets import DatasetError
from dropmargin.reproduction import EXPERIMENTS
from made_up_experiment import made_up_experiment
from pages import assert_self_contained


@pytest.fixture
def experiments(monkeypatch):
    """Put made-up experiments in place of the real ones, and note what they measure."""
    measured = []

    def use(**options_of):
        found = {name: made_up_experiment(name, measured=measured, **options) for name, options in options_of.items()}
        monkeypatch.setattr(reproduction, "EXPERIMENTS", found)
        measured.clear()
        return measured

    return use


def test_names_are_those_of_the_experiments():
    (action,) = [action for action in make_parser("reproduce").actions() if action.dest == "experiment"]
    assert tuple(action.choices) == (*reproduce.NAMES, "all")
    assert list(EXPERIMENTS) == list(reproduce.NAMES)


def test_runs_and_reports(run, experiments, tmp_path):
    measured = experiments(amazon={})
    done = run("reproduce", "amazon", "--html", "page.html", "--figures", "figures")
    assert measured == [("amazon", 0), ("amazon", 1)]
    assert "0 of 2 measurements are in results/amazon.jsonl, 2 to go" in done.err
    assert "Experiment amazon: of the claims 1 of 1 holds (2 measurements, " in done.out
    assert "  holds          The errors rise: from 0.1" in done.out
    assert done.out.rstrip().endswith("results results/\nsaved page.html\nsaved figures/amazon-chart.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures", "page.html", "results"]
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert_self_contained(page)
    assert "Experiment amazon" in page
    assert "dropmargin reproduce amazon" in page


def test_the_command_in_the_book_makes_it_anew_and_has_no_folders(run, experiments):
    experiments(amazon={})
    run("reproduce", "amazon", "--quick", "--seed", "3", "--data", "/secret", "--results", "r", "--quiet")
    book = reproduction.read_book(reproduction.book_path("r", "amazon", True))
    assert book.header["command"] == "dropmargin reproduce amazon --quick --seed 3"
    assert (book.header["quick"], book.header["seed"]) == (True, 3)


def test_an_interruption_keeps_what_was_measured_and_says_how_to_go_on(run, experiments, tmp_path):
    measured = experiments(amazon={"n_tasks": 3, "fails_at": 2, "error": KeyboardInterrupt()})
    done = run("reproduce", "amazon", "--html", "page.html", code=130)
    assert done.error == "interrupted"
    assert "is kept in results/amazon.jsonl; the same command goes on from there" in done.err
    assert len(measured) == 2
    assert not (tmp_path / "page.html").exists()
    measured = experiments(amazon={"n_tasks": 3})
    done = run("reproduce", "amazon", "--html", "page.html")
    assert "2 of 3 measurements are in results/amazon.jsonl, 1 to go" in done.err
    assert measured == [("amazon", 2)]
    # A third run has nothing to do but the page.
    (tmp_path / "page.html").unlink()
    measured = experiments(amazon={"n_tasks": 3})
    run("reproduce", "amazon", "--html", "page.html")
    assert measured == []
    assert (tmp_path / "page.html").exists()


def test_an_interruption_before_the_first_measurement_has_nothing_to_keep(run, experiments, tmp_path):
    experiments(amazon={"fails_at": 0, "error": KeyboardInterrupt()})
    assert "kept" not in run("reproduce", "amazon", code=130).err
    assert list(tmp_path.iterdir()) == []


def test_fresh_measures_again_and_an_interruption_says_to_leave_it_out(run, experiments):
    experiments(amazon={})
    run("reproduce", "amazon")
    experiments(amazon={"fails_at": 1, "error": KeyboardInterrupt()})
    assert "the same command, without --fresh, goes on" in run("reproduce", "amazon", "--fresh", code=130).err
    measured = experiments(amazon={})
    assert "0 of 2 measurements" in run("reproduce", "amazon", "--fresh").err
    assert len(measured) == 2


def test_another_seed_is_refused_before_any_work(run, experiments):
    measured = experiments(amazon={})
    run("reproduce", "amazon")
    measured.clear()
    done = run("reproduce", "amazon", "--seed", "1", code=1)
    assert "has results for seed 0, not 1. Pass --fresh" in done.error
    assert done.err.count("\n") == 1
    assert measured == []


def test_of_all_one_may_fail_and_the_others_go_on(run, experiments, tmp_path):
    error = DatasetError("mnist.gz is missing: get it and put it there.")
    measured = experiments(amazon={}, explicit={"fails_at": 0, "error": error}, nightmare={})
    done = run("reproduce", "all", "--html", "page.html", code=1)
    assert [name for name, _ in measured] == ["amazon", "amazon", "nightmare", "nightmare"]
    assert done.error == "explicit: mnist.gz is missing: get it and put it there."
    assert done.err.splitlines()[-1].endswith(done.error)
    assert "Experiment amazon" in done.out
    assert "Experiment nightmare" in done.out
    assert "Not on this page: explicit. mnist.gz is missing" in (tmp_path / "page.html").read_text(encoding="utf-8")
    # When the data are there, only what failed is left.
    measured = experiments(amazon={}, explicit={}, nightmare={})
    run("reproduce", "all", "--html", "page.html")
    assert [name for name, _ in measured] == ["explicit", "explicit"]


def test_a_single_one_that_fails_is_one_line(run, experiments, tmp_path):
    experiments(amazon={"fails_at": 0, "error": DatasetError("it is missing.")})
    done = run("reproduce", "amazon", "--html", "page.html", code=1)
    assert done.error == "it is missing."
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_reported_if_all_fail(run, experiments, tmp_path):
    error = DatasetError("it is missing.")
    experiments(amazon={"fails_at": 0, "error": error}, explicit={"fails_at": 0, "error": error})
    done = run("reproduce", "all", "--html", "page.html", code=1)
    assert done.out == ""
    assert done.err.count("error: ") == 2
    assert list(tmp_path.iterdir()) == []


def test_from_results_runs_nothing_and_says_what_is_missing(run, experiments, tmp_path):
    experiments(amazon={}, explicit={})
    run("reproduce", "amazon", "--quiet")
    measured = experiments(amazon={}, explicit={})
    before = (tmp_path / "results" / "amazon.jsonl").read_bytes()
    done = run("reproduce", "all", "--from-results", "--html", "page.html")
    assert measured == []
    assert "warning: no results of explicit: results/explicit.jsonl is not there." in done.err
    assert "Experiment amazon" in done.out
    assert "Not on this page: explicit." in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (tmp_path / "results" / "amazon.jsonl").read_bytes() == before


def test_from_results_without_any_is_an_error_that_knows_of_quick_ones(run, experiments, tmp_path):
    experiments(amazon={}, explicit={})
    run("reproduce", "amazon", "--quick", "--quiet")
    done = run("reproduce", "all", "--from-results", "--html", "page.html", code=1)
    assert "there are no results to report on: " in done.error
    assert "results/amazon.jsonl is not there (but quick ones are: --quick)." in done.error
    assert "results/explicit.jsonl is not there." in done.error
    assert not (tmp_path / "page.html").exists()
    run("reproduce", "all", "--from-results", "--quick")


def test_a_book_that_is_not_finished_or_damaged_is_one_sentence(run, experiments, tmp_path):
    experiments(amazon={"n_tasks": 1})
    run("reproduce", "amazon", "--quiet")
    experiments(amazon={})
    assert (
        "no report can be made of the results in results/amazon.jsonl, 1 in number"
        in run("reproduce", "amazon", "--from-results", code=1).error
    )
    book = tmp_path / "results" / "amazon.jsonl"
    book.write_text(book.read_text() + "x\n")
    for how in ("--from-results", "--quiet"):
        assert "amazon.jsonl, line 3: not a line of a lab book" in run("reproduce", "amazon", how, code=1).error


def test_json_has_claims_and_tables(run, experiments):
    experiments(amazon={})
    found = run("reproduce", "amazon", "--json", "--html", "page.html").json
    assert found["saved"] == ["page.html"]
    experiment = found["experiments"]["amazon"]
    assert experiment["measurements"] == 2
    assert experiment["claims"] == [{"claim": "The errors rise.", "holds": True, "evidence": "from 0.1"}]
    assert experiment["tables"][0]["rows"]["theirs"] == {"ours": [0.21, None], "published": [0.1999, 0.16]}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["amzon"], 2, "did you mean amazon?"),
        ([], 2, "the following arguments are required"),
        (["amazon", "--from-results", "--fresh"], 2, "give one of the two"),
        (["amazon", "--seed", "-1"], 2, "expected a whole number from 0"),
        (["amazon", "--html", "nowhere/page.html"], 1, "cannot write: there is no folder"),
        (["amazon", "--html", "."], 1, "it is a folder"),
        (["amazon", "--results", "file/results"], 1, "file is a file"),
        (["amazon", "--figures", "file"], 1, "file is a file"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(run, experiments, tmp_path, arguments, code, message):
    measured = experiments(amazon={})
    (tmp_path / "file").write_text("")
    done = run("reproduce", *arguments, code=code)
    assert message in done.error
    assert measured == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind root")
def test_a_folder_without_permission_is_refused_before_any_work(run, experiments, tmp_path):
    measured = experiments(amazon={})
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "no permission" in run("reproduce", "amazon", "--results", "locked/results", code=1).error
    assert measured == []
