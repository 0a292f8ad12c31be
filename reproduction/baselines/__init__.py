"""Older methods that the papers compare with: training on sampled copies, and on the worst case (FDROP)."""

from reproduction.baselines.explicit import ExplicitCorruption
from reproduction.baselines.fdrop import FDropSVC

__all__ = ["ExplicitCorruption", "FDropSVC"]
