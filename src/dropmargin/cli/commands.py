"""The group of all commands. To add a command, write its module as `dropmargin.cli.info` and add it here."""

from __future__ import annotations

import click

from dropmargin import __version__
from dropmargin.cli.cv import cv
from dropmargin.cli.demo import demo
from dropmargin.cli.evaluate import evaluate
from dropmargin.cli.explain import explain
from dropmargin.cli.export import export
from dropmargin.cli.info import info
from dropmargin.cli.predict import predict
from dropmargin.cli.program import CONTEXT_SETTINGS
from dropmargin.cli.stress import stress
from dropmargin.cli.train import train

_EPILOG = """\b
Examples:
  dropmargin train train.svm model.safetensors --noise 0.5 -c 1
  dropmargin cv reviews.csv --text review --target stars -o model.safetensors
  dropmargin predict test.svm model.safetensors -o labels.csv

Exit codes: 0 success, 1 failure, 2 wrong usage, 3 not converged (with --strict).
"""


@click.group(context_settings=CONTEXT_SETTINGS, epilog=_EPILOG)
@click.version_option(__version__, message="dropmargin %(version)s")
def dropmargin() -> None:
    """Linear models that survive the loss of their features.

    dropmargin COMMAND --help lists the options of a command.
    """


for _command in (train, cv, predict, explain, evaluate, stress, info, export, demo):
    dropmargin.add_command(_command)
