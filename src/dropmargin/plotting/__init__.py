"""Plots in the style of scikit-learn's displays. Matplotlib is imported when the first one is made."""

from dropmargin.plotting.noise_grid import NoiseGridDisplay
from dropmargin.plotting.noise_path import NoisePathDisplay

__all__ = ["NoiseGridDisplay", "NoisePathDisplay"]
