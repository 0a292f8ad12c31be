"""The results log: measurements are neither lost nor repeated after errors, interrupts and kills."""

from __future__ import annotations

import json
import os

import pytest

from command_line import run_script
from reproduction import results_log
from reproduction.results_log import (
    Measurement,
    ResultsLog,
    ResultsLogError,
    Task,
    log_path,
    make_header,
    open_log,
    read_log,
)


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


def test_measurements_are_read_back_unchanged(tmp_path):
    log, measured = perform(tmp_path / "new" / "folder")
    assert measured == [0, 1, 2]
    again = read_log(log.path)
    assert list(again) == list(log)
    assert again.header == header()
    assert [one.result["error"] for one in again] == [0 / 7, 1 / 7, 2 / 7]
    assert again.seconds == sum(one.seconds for one in log)
    assert set(again.header["versions"]) == {"python", "dropmargin", "numpy", "scipy", "scikit-learn"}


def test_existing_measurements_are_not_repeated(tmp_path):
    perform(tmp_path, 2)
    log, measured = perform(tmp_path, 4)
    assert measured == [2, 3]
    assert len(log) == 4
    before = log.path.read_bytes()
    assert perform(tmp_path, 4)[1] == []
    assert log.path.read_bytes() == before


def test_order_of_a_key_does_not_matter_and_select_takes_a_part_of_it(tmp_path):
    log = ResultsLog(tmp_path / "b.jsonl", header())
    log.add(Measurement({"a": 1, "b": "x"}, {"error": 0.5}, 1.0))
    log.add(Measurement({"a": 2, "b": "x"}, {"error": 0.25}, 2.0))
    assert log.get({"b": "x", "a": 1}).result == {"error": 0.5}
    assert log.get({"a": 1}) is None
    assert [one.key["a"] for one in log.select(b="x")] == [1, 2]
    assert log.select(b="x", a=2)[0].seconds == 2.0
    assert log.select(c=None) == []


def test_first_measurement_creates_the_log(tmp_path):
    def fails():
        raise OSError("no data")

    with pytest.raises(OSError, match="no data"):
        open_log(tmp_path / "new", header()).perform([Task({}, fails)], "made-up", verbose=0)
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize("line", ["", "{", "[]", "7", '{"key": {}}', '{"key": 1, "result": {}, "seconds": 1}', "\xff"])
def test_error_names_the_invalid_line(tmp_path, line):
    path = perform(tmp_path)[0].path
    lines = path.read_bytes().split(b"\n")
    lines[2] = line.encode("latin-1")
    path.write_bytes(b"\n".join(lines))
    before = path.read_bytes()
    for read in (lambda: read_log(path), lambda: perform(tmp_path)):
        with pytest.raises(ResultsLogError, match=r"made-up\.jsonl, line 3: not a line of a results log .*--fresh"):
            read()
    assert path.read_bytes() == before


@pytest.mark.parametrize("first", [b"", b"half a header", b"{}\n", b"[]\n", b'{"format": 99}\n'])
def test_other_files_are_refused(tmp_path, first):
    path = log_path(tmp_path, "made-up", False)
    path.write_bytes(first)
    with pytest.raises(ResultsLogError, match=r"made-up\.jsonl.*--fresh"):
        perform(tmp_path)
    assert path.read_bytes() == first


def test_log_of_another_seed_is_refused(tmp_path):
    path = perform(tmp_path)[0].path
    before = path.read_bytes()
    with pytest.raises(ResultsLogError, match=r"results for seed 0, not 1\. Pass --fresh .* or another folder"):
        open_log(tmp_path, header(seed=1))
    assert path.read_bytes() == before
    # The command (another one in version 0.1) and the number of threads do not change the results.
    old = header(threads=2) | {"command": "dropmargin reproduce made-up"}
    assert len(open_log(tmp_path, old)) == 3


def test_measurements_of_another_version_are_neither_reused_nor_lost(tmp_path, monkeypatch):
    path = perform(tmp_path)[0].path
    old = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(results_log, "__version__", "99.0")
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


def test_a_new_version_that_was_killed_before_its_first_measurement(tmp_path, monkeypatch):
    path = perform(tmp_path)[0].path
    monkeypatch.setattr(results_log, "__version__", "99.0")
    for end in ("\n", ""):  # a complete and an incomplete header
        path.write_bytes(path.read_bytes() + (json.dumps(header()) + end).encode())
        assert len(read_log(path)) == 3
    assert perform(tmp_path)[1] == [0, 1, 2]
    assert len(read_log(path)) == 3
    assert read_log(path).header == header()


def test_quick_and_full_runs_have_separate_logs(tmp_path):
    perform(tmp_path)
    assert len(open_log(tmp_path, header(quick=True))) == 0
    assert log_path(tmp_path, "made-up", True).name == "made-up-quick.jsonl"
    # A renamed log is refused.
    os.rename(log_path(tmp_path, "made-up", False), log_path(tmp_path, "made-up", True))
    with pytest.raises(ResultsLogError, match="results for quick False, not True"):
        open_log(tmp_path, header(quick=True))


def test_fresh_replaces_an_existing_log(tmp_path):
    path = perform(tmp_path)[0].path
    path.write_text("no results log\n")
    measured = perform(tmp_path, fresh=True)[1]
    assert measured == [0, 1, 2]
    assert len(read_log(path)) == 3


def test_task_can_read_earlier_measurements(tmp_path):
    log = open_log(tmp_path, header())
    first = Task({"i": 0}, lambda: {"C": 0.1})
    second = Task({"i": 1}, lambda: {"C": 2 * log.get({"i": 0}).result["C"]})
    log.perform([first, second], "made-up", verbose=0)
    assert read_log(log.path).get({"i": 1}).result == {"C": 0.2}


_KILLED = """
import json, os, sys
from pathlib import Path
from dropmargin.io import atomic
from reproduction import results_log
from reproduction.results_log import Task, log_path, make_header, open_log, read_log
from killing import Killing

folder = Path(sys.argv[1])
header = make_header("made-up", quick=False, seed=0, threads=1)
path = log_path(folder, "made-up", False)

def run(measured, killing):
    def task(i):
        def measure():
            if killing is not None:
                killing.tick()
            measured.append(i)
            return {"text": "x" * 700}
        return Task({"i": i}, measure)
    open_log(folder, header).perform([task(i) for i in range(3)], "made-up", verbose=0)

for point in range(1, 100):
    path.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        killing = atomic.os = results_log.os = Killing(point)
        run([], killing)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    before = [m.key["i"] for m in read_log(path)] if path.exists() else []
    measured = []
    run(measured, None)
    lines = path.read_text().count(chr(10))
    print(json.dumps([os.WIFSIGNALED(status), before, measured, lines]))
    if not os.WIFSIGNALED(status):
        break
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_kill_9_loses_only_the_current_measurement(tmp_path):
    outcomes = [json.loads(line) for line in run_script(_KILLED, tmp_path).splitlines()]
    for _, before, measured, lines in outcomes:
        assert before + measured == [0, 1, 2]  # each once, in the order of the tasks
        assert lines == 4
    assert [killed for killed, *_ in outcomes] == [True] * (len(outcomes) - 1) + [False]
    assert {len(before) for _, before, *_ in outcomes} == {0, 1, 2, 3}
