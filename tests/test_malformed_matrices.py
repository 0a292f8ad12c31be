"""Sparse matrices whose arrays do not fit together are an error; they never crash the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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


def test_malformed_matrix_is_an_error_and_valid_one_is_not():
    # In a process of its own: what is tested for is a segmentation fault.
    command = [sys.executable, Path(malformed.__file__), *_METHODS]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    outcomes = dict.fromkeys(malformed.BROKEN, "ValueError") | dict.fromkeys(malformed.VALID, "right")
    wanted = [[method, *case] for method in _METHODS for case in outcomes.items()]
    assert done.returncode == 0, (wanted[len(found)], done.stderr[-2000:])
    assert found == wanted
