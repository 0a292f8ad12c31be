"""The group of all commands."""

from __future__ import annotations

import click

from dropmargin import __version__
from dropmargin.cli.demo import demo
from dropmargin.cli.inspect import export, info
from dropmargin.cli.predict import evaluate, explain, predict
from dropmargin.cli.program import CONTEXT_SETTINGS
from dropmargin.cli.stress import stress
from dropmargin.cli.train import cv, train

_EPILOG = """\b
Examples:
  dropmargin train customers.csv model.safetensors --target churn
  dropmargin evaluate test.csv model.safetensors
  dropmargin predict new.csv model.safetensors --ids customer -o labels.csv

Exit codes: 0 success, 1 failure, 2 wrong usage.
"""


@click.group(context_settings=CONTEXT_SETTINGS, epilog=_EPILOG)
@click.version_option(__version__, message="dropmargin %(version)s")
def dropmargin() -> None:
    """Models of tables, text and sparse data that survive the loss of their features.

    dropmargin COMMAND --help lists the options of a command.
    """


for _command in (train, cv, predict, evaluate, explain, stress, info, export, demo):
    dropmargin.add_command(_command)
