"""How a fitted classifier, of this library or not, stands the loss and the corruption of its features."""

from dropmargin.evaluation.corruption import CorruptionCurve, corruption_curve
from dropmargin.evaluation.deletion import DeletionCurve, deletion_curve

__all__ = ["CorruptionCurve", "DeletionCurve", "corruption_curve", "deletion_curve"]
