"""Fixtures that several test files share."""

from __future__ import annotations

import io
import sys

import pytest

from command_line import Outcome
from dropmargin.cli.main import main


@pytest.fixture
def draw_in_memory():
    """Draw without a screen, and forget the figures after the test."""
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    yield
    plt.close("all")


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Return a function that runs a command in a folder of its own and must end with ``code``."""
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()

    def run(*arguments, code=0, stdin=None):
        with monkeypatch.context() as patch:
            if stdin is not None:
                patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            found = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert found == code, err
        return Outcome(found, out, err)

    return run
