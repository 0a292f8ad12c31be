"""The paper's baselines: corrupted copies of the data, and the worst case over deleted features."""

from dropmargin.baselines.explicit import ExplicitCorruption
from dropmargin.baselines.fdrop import FDropSVC

__all__ = ["ExplicitCorruption", "FDropSVC"]
