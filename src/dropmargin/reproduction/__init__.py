"""The experiments of *Dropout Training for Support Vector Machines* (AAAI 2014), run anew beside the published numbers.

Each experiment is a module: its ``tasks`` measure, one line of a lab book (`labbook`) each; its ``summarise`` puts what
was measured beside what was `published`. `harness` runs them.
"""

from dropmargin.reproduction.amazon import AMAZON
from dropmargin.reproduction.cifar10 import CIFAR10
from dropmargin.reproduction.explicit import EXPLICIT
from dropmargin.reproduction.harness import Experiment, run_experiment
from dropmargin.reproduction.labbook import LabBookError, book_path, read_book
from dropmargin.reproduction.nightmare import NIGHTMARE
from dropmargin.reproduction.summary import Chart, Claim, Comparison, Series, Summary

#: By their names on the command line, in the order of the paper.
EXPERIMENTS = {experiment.name: experiment for experiment in (AMAZON, EXPLICIT, CIFAR10, NIGHTMARE)}

__all__ = [
    "EXPERIMENTS",
    "Chart",
    "Claim",
    "Comparison",
    "Experiment",
    "LabBookError",
    "Series",
    "Summary",
    "book_path",
    "read_book",
    "run_experiment",
]
