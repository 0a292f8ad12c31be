"""Pictures, in the manner of scikit-learn's displays; Matplotlib is imported when one is drawn."""

from dropmargin.plotting.deletion import DeletionCurveDisplay

__all__ = ["DeletionCurveDisplay"]
