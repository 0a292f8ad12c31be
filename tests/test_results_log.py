"""The results log: measurements are neither lost nor repeated after errors, interrupts and kills."""

from __future__ import annotations

import dropmargin
from reproduction import results_log
from reproduction.results_log import Task, code_version, make_header, open_log, read_log


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
