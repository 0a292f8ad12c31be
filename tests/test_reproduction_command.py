"""``python -m reproduction``: resumes, survives interruptions, reports on what is there; with made-up experiments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import environment, run_script
from made_up_experiment import made_up_experiment
from pages import assert_self_contained
from reproduction import command
from reproduction import experiments as real
from reproduction.datasets import DatasetError
from reproduction.results_log import log_path, read_log


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


_ROOT = Path(__file__).parent.parent
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


@pytest.mark.parametrize(
    ("command_line", "path", "message"),
    [
        # A folder as a script: Python looks for packages inside it, not beside it.
        (["reproduction"], "src", "the package reproduction is not found: run python -m reproduction in the root of"),
        # Without site-packages and src.
        (["-S", "-m", "reproduction"], "", "the package click is not installed: run pip install -e '.[reproduc"),
    ],
)
def test_a_missing_package_is_one_line_that_says_what_to_do(command_line, path, message):
    done = subprocess.run(
        [sys.executable, *command_line, "amazon"],
        cwd=_ROOT,
        env=environment() | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"dropmargin: error: {message}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


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


def test_the_command_in_the_log_makes_it_anew_and_has_no_folders(reproduce, experiments):
    experiments(amazon={})
    reproduce("amazon", "--quick", "--seed", "3", "--data", "/secret", "--results", "r", "--quiet")
    log = read_log(log_path("r", "amazon", True))
    assert log.header["command"] == "python -m reproduction amazon --quick --seed 3"
    assert (log.header["quick"], log.header["seed"]) == (True, 3)


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


def test_an_interruption_before_the_first_measurement_has_nothing_to_keep(reproduce, experiments, tmp_path):
    experiments(amazon={"fails_at": 0, "error": KeyboardInterrupt()})
    assert "kept" not in reproduce("amazon", code=130).err
    assert list(tmp_path.iterdir()) == []


def test_fresh_measures_again_and_an_interruption_says_to_leave_it_out(reproduce, experiments):
    experiments(amazon={})
    reproduce("amazon")
    experiments(amazon={"fails_at": 1, "error": KeyboardInterrupt()})
    assert "the same command, without --fresh, goes on" in reproduce("amazon", "--fresh", code=130).err
    measured = experiments(amazon={})
    assert "0 of 2 measurements" in reproduce("amazon", "--fresh").err
    assert len(measured) == 2


def test_another_seed_is_refused_before_any_work(reproduce, experiments):
    measured = experiments(amazon={})
    reproduce("amazon")
    measured.clear()
    done = reproduce("amazon", "--seed", "1", code=1)
    assert "has results for seed 0, not 1. Pass --fresh" in done.error
    assert done.err.count("\n") == 1
    assert measured == []


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


def test_a_single_one_that_fails_is_one_line(reproduce, experiments, tmp_path):
    experiments(amazon={"fails_at": 0, "error": DatasetError("it is missing.")})
    done = reproduce("amazon", "--html", "page.html", code=1)
    assert done.error == "it is missing."
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_reported_if_all_fail(reproduce, experiments, tmp_path):
    error = DatasetError("it is missing.")
    experiments(amazon={"fails_at": 0, "error": error}, explicit={"fails_at": 0, "error": error})
    done = reproduce("all", "--html", "page.html", code=1)
    assert done.out == ""
    assert done.err.count("error: ") == 2
    assert list(tmp_path.iterdir()) == []


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


def test_from_results_without_any_is_an_error_that_knows_of_quick_ones(reproduce, experiments, tmp_path):
    experiments(amazon={}, explicit={})
    reproduce("amazon", "--quick", "--quiet")
    done = reproduce("all", "--from-results", "--html", "page.html", code=1)
    assert "there are no results to report on: " in done.error
    assert "results/amazon.jsonl is not there (but quick ones are: --quick)." in done.error
    assert "results/explicit.jsonl is not there." in done.error
    assert not (tmp_path / "page.html").exists()
    reproduce("all", "--from-results", "--quick")


def test_a_log_that_is_not_finished_or_damaged_is_one_sentence(reproduce, experiments, tmp_path):
    experiments(amazon={"n_tasks": 1})
    reproduce("amazon", "--quiet")
    experiments(amazon={})
    assert (
        "no report can be made of the results in results/amazon.jsonl, 1 in number"
        in reproduce("amazon", "--from-results", code=1).error
    )
    log = tmp_path / "results" / "amazon.jsonl"
    log.write_text(log.read_text() + "x\n")
    for how in ("--from-results", "--quiet"):
        assert "amazon.jsonl, line 3: not a line of a results log" in reproduce("amazon", how, code=1).error


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
        (["amzon"], 2, "did you mean amazon?"),
        ([], 2, "Missing argument"),
        (["amazon", "--from-results", "--fresh"], 2, "give one of the two"),
        (["amazon", "--seed", "-1"], 2, "--seed: expected an integer from 0"),
        (["amazon", "--n-jobs", "0"], 2, "--n-jobs: expected an integer from 1"),
        (["amazon", "--qick"], 2, "No such option"),
        (["amazon", "--html", "nowhere/page.html"], 1, "cannot write: there is no folder"),
        (["amazon", "--html", "."], 1, "it is a folder"),
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


def test_a_results_log_is_not_replaced_by_the_report(reproduce, tmp_path):
    log = log_path("results", "amazon", True)
    (tmp_path / "results").mkdir()
    (tmp_path / log).write_text("measured\n")
    assert f"--html {log}" in reproduce("explicit", "--html", log, "--no-download", code=2).error
    assert (tmp_path / log).read_text() == "measured\n"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind root")
def test_a_folder_without_permission_is_refused_before_any_work(reproduce, experiments, tmp_path):
    measured = experiments(amazon={})
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "no permission" in reproduce("amazon", "--results", "locked/results", code=1).error
    assert measured == []
