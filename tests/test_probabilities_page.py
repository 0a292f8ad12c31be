"""The tables of docs/probabilities.md are those of the stored results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs" / "probabilities.md"


def _results(path):
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def test_tables_of_probabilities_are_those_of_the_results():
    pytest.importorskip("pandas")
    from benchmarks import calibration, coverage

    text = DOCS.read_text(encoding="utf-8")
    for name in ("calibration_error", "log_loss"):
        assert calibration.markdown(_results(calibration.FILE), name) in text
    for tables in (coverage.NUMBERS, coverage.LABELS):
        assert coverage.markdown(_results(coverage.FILE), tables) in text
