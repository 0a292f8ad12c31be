"""The tables of docs/probabilities.md are those of the stored results."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import results

DOCS = Path(__file__).parents[1] / "docs" / "probabilities.md"


def test_tables_of_probabilities_are_those_of_the_results():
    pytest.importorskip("pandas")
    from benchmarks import calibration, coverage

    text = DOCS.read_text(encoding="utf-8")
    for name in ("calibration_error", "log_loss"):
        assert calibration.markdown(results.read("calibration"), name) in text
    for tables in (coverage.NUMBERS, coverage.LABELS):
        assert coverage.markdown(results.read("coverage"), tables) in text
