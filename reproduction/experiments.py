"""The list of the experiments."""

from reproduction.amazon import AMAZON
from reproduction.cifar10 import CIFAR10
from reproduction.explicit import EXPLICIT
from reproduction.nightmare import NIGHTMARE

#: Experiments by their names on the command line, in the order of the paper.
EXPERIMENTS = {experiment.name: experiment for experiment in (AMAZON, EXPLICIT, CIFAR10, NIGHTMARE)}
