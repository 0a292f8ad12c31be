"""Pictures, in the manner of scikit-learn's displays; Matplotlib is imported when one is drawn."""

from dropmargin.plotting.convergence import ConvergenceDisplay
from dropmargin.plotting.deletion import DeletionCurveDisplay
from dropmargin.plotting.noise_grid import NoiseGridDisplay
from dropmargin.plotting.noise_path import NoisePathDisplay

__all__ = ["ConvergenceDisplay", "DeletionCurveDisplay", "NoiseGridDisplay", "NoisePathDisplay"]
