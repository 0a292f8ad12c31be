"""Baselines of the paper: training on corrupted copies, and on the worst case over deleted features."""

from dropmargin.baselines.explicit import ExplicitCorruption
from dropmargin.baselines.fdrop import FDropSVC

__all__ = ["ExplicitCorruption", "FDropSVC"]
