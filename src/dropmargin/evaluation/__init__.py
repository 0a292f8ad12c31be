"""Scores of any fitted classifier or regressor when features are deleted or corrupted at prediction."""

from dropmargin.evaluation.curves import CorruptionCurve, DeletionCurve, corruption_curve, deletion_curve

__all__ = ["CorruptionCurve", "DeletionCurve", "corruption_curve", "deletion_curve"]
