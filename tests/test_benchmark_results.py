"""The common writer of the benchmarks' results."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import results


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    return tmp_path / "results"


def test_rows_come_back_with_the_run_that_measured_them():
    results.write("errors", [{"table": "wine", "error": np.float64(0.25), "n": np.int64(3)}], libraries=["pytest"])
    (row,) = results.read("errors")
    assert (row["table"], row["error"], row["n"]) == ("wine", 0.25, 3)
    assert row["run"]["versions"]["numpy"] == np.__version__
    assert row["run"]["versions"]["pytest"] == pytest.__version__
    assert row["run"]["cores"] >= 1


def test_rows_of_the_same_key_are_replaced_and_others_keep_their_run(folder, monkeypatch):
    results.write("errors", [{"table": name, "error": 1} for name in ("wine", "iris")], key=["table"])
    monkeypatch.setattr(results, "describe", lambda libraries=(): {"command": "another"})
    results.write("errors", [{"table": "wine", "error": 2}], key=["table"])
    found = {row["table"]: (row["error"], row["run"]["command"] == "another") for row in results.read("errors")}
    assert found == {"iris": (1, False), "wine": (2, True)}
    lines = [json.loads(text) for text in (folder / "errors.jsonl").read_text().splitlines()]
    assert [isinstance(line["run"], dict) for line in lines] == [True, False, True, False]


def test_without_a_key_all_rows_are_replaced():
    results.write("errors", [{"error": 1}])
    results.write("errors", [{"error": 2}, {"error": 3}])
    assert [row["error"] for row in results.read("errors")] == [2, 3]


def test_rows_that_were_read_can_be_written_again():
    results.write("errors", [{"error": 1}])
    results.write("errors", results.read("errors"))
    assert [row["error"] for row in results.read("errors")] == [1]


def test_nothing_is_stored_of_rows_that_json_does_not_have():
    results.write("errors", [{"error": 1}])
    with pytest.raises(AttributeError):
        results.write("errors", [{"error": object()}])
    assert [row["error"] for row in results.read("errors")] == [1]


def test_nothing_stored_is_no_rows():
    assert results.read("nothing") == []
