"""The command of the reproduction, its log of results, and the baselines of the paper."""

from __future__ import annotations

import pytest

import dropmargin
from made_up_experiment import made_up_experiment
from pages import assert_self_contained
from reproduction import experiments as real
from reproduction import results_log
from reproduction.datasets import DatasetError
from reproduction.results_log import Task, code_version, make_header, open_log, read_log


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


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["amzon"], 2, "amzon"),
        ([], 2, ""),
        (["amazon", "--from-results", "--fresh"], 2, "give one of the two"),
        (["amazon", "--seed", "-1"], 2, "--seed"),
        (["amazon", "--n-jobs", "0"], 2, "--n-jobs"),
        (["amazon", "--qick"], 2, "--qick"),
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


def header(**changed):
    known = {"quick": False, "seed": 0, "threads": 1}
    return make_header("made-up", **(known | changed))


def tasks(measured, n=3):
    """Return tasks that append their numbers to ``measured`` when they are performed."""

    def task(i):
        def measure():
            measured.append(i)
            return {"error": i / 7}

        return Task({"i": i}, measure)

    return [task(i) for i in range(n)]


def perform(folder, n=3, **options):
    """Open the log, perform the remaining tasks, and return the log and the numbers of these tasks."""
    measured = []
    log = open_log(folder, header(), **options)
    log.perform(tasks(measured, n), "made-up", verbose=0)
    return log, measured


def test_the_version_changes_with_the_code_that_measures(tmp_path):
    for part in ("losses", "cli"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "code.py").write_text("a = 1\n")
    first = code_version(tmp_path)
    assert first.startswith(f"{dropmargin.__version__}+")
    (tmp_path / "cli" / "code.py").write_text("a = 2\n")
    assert code_version(tmp_path) == first
    (tmp_path / "losses" / "code.py").write_text("a = 2\n")
    assert code_version(tmp_path) != first


def test_incomplete_last_line_is_removed(tmp_path):
    path = perform(tmp_path)[0].path
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(last, len(whole)):
        path.write_bytes(whole[:end])
        assert len(read_log(path)) == 2
        assert path.stat().st_size == end  # reading does not change the file
        measured = perform(tmp_path)[1]
        assert measured == [2]
        assert [one.key["i"] for one in read_log(path)] == [0, 1, 2]
        assert path.read_bytes().startswith(whole[:last])


def test_measurements_of_another_version_are_neither_reused_nor_lost(tmp_path, monkeypatch):
    path = perform(tmp_path)[0].path
    old = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(results_log, "code_version", lambda: "99.0")
        log, measured = perform(tmp_path, 1)
        assert measured == [0]  # not taken from the other version
        assert len(log) == 1
        assert path.read_bytes().startswith(old)
        assert [(len(own), own.header["versions"]["dropmargin"]) for own in (log, read_log(path))] == [(1, "99.0")] * 2
        assert perform(tmp_path, 2)[1] == [1]
        assert path.read_text().count('"format"') == 2  # a header for each version
    log, measured = perform(tmp_path, 4)  # the first version goes on with its own
    assert measured == [3]
    assert len(log) == len(read_log(path)) == 4
    assert log.header == header()
