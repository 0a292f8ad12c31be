"""Scores of any fitted classifier or regressor when features are deleted or corrupted at prediction."""

from dropmargin.evaluation.corruption import CorruptionCurve, corruption_curve
from dropmargin.evaluation.deletion import DeletionCurve, deletion_curve

__all__ = ["CorruptionCurve", "DeletionCurve", "corruption_curve", "deletion_curve"]
