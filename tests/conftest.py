"""Fixtures that several test files share."""

from __future__ import annotations

import io
import os
import re
import sys
from functools import partial

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from command_line import Outcome
from dropmargin.cli.main import main
from reproduction.command import main as reproduction_main

if "PYTEST_XDIST_WORKER" in os.environ:
    # There is a process per core already: more threads, of BLAS or of scikit-learn's trees, would wait for each other.
    # The variable is for processes that tests start: pytest has loaded BLAS and OpenMP before this file.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    threadpool_limits(1)


def pytest_make_parametrize_id(config, val, argname):
    """Return the name of a case: a name where the value has one, else its text, so that a case can be selected."""
    if val is None or isinstance(val, str | int | float | bool | re.Pattern | set):
        return None  # as pytest names it
    name = getattr(val, "__name__", "<lambda>")
    if name == "<lambda>":
        name = argname if callable(val) else " ".join(re.sub(" at 0x[0-9A-Fa-f]+", "", repr(val)).split())
    return name if len(name) <= 60 else f"{name[:57]}..."


@pytest.fixture
def draw_in_memory():
    """Draw without a screen, and forget the figures after the test."""
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    yield
    plt.close("all")


@pytest.fixture
def run_program(capsys, tmp_path, monkeypatch):
    """Return a function that runs a program in a folder of its own and checks that its exit code is ``code``."""
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()

    def run(program, *arguments, code=0, stdin=None):
        with monkeypatch.context() as patch:
            if stdin is not None:
                patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            found = program([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert found == code, err
        return Outcome(found, out, err)

    return run


@pytest.fixture
def run(run_program):
    """Return a function that runs a command of ``dropmargin``."""
    return partial(run_program, main)


@pytest.fixture
def reproduce(run_program):
    """Return a function that runs ``python -m reproduction``."""
    return partial(run_program, reproduction_main)


@pytest.fixture(scope="session")
def rows():
    """Return rows of numbers about 2, which no test changes."""
    return np.random.default_rng(0).normal(2.0, 1.0, (60, 10))
