"""Sparse matrices whose arrays do not fit together are an error; they never crash the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import malformed
from command_line import environment

_METHODS = [
    "fit",
    "partial_fit",
    "predict",
    "predict with missing",
    "predict_proba",
    "predict_stability",
    "deletion_curve",
    "estimate_dropout_rates",
    "NoiseTransformer",
]


@pytest.mark.parametrize("method", _METHODS)
def test_malformed_matrix_is_an_error_and_valid_one_is_not(method):
    # In a process of its own: what is tested for is a segmentation fault.
    script = Path(malformed.__file__)
    done = subprocess.run([sys.executable, script, method], env=environment(), capture_output=True, text=True)
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    cases = [*malformed.BROKEN, *malformed.VALID]
    assert done.returncode == 0, (cases[len(found)], done.stderr[-2000:])
    assert found == dict.fromkeys(malformed.BROKEN, "ValueError") | dict.fromkeys(malformed.VALID, "right")
