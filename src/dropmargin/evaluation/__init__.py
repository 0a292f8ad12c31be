"""What a fitted model does when features are deleted or corrupted, and which features it relies on."""

from dropmargin.evaluation.curves import CorruptionCurve, DeletionCurve, corruption_curve, deletion_curve
from dropmargin.evaluation.display import DeletionCurveDisplay
from dropmargin.evaluation.explanation import Explanation, RowExplanation, explain
from dropmargin.evaluation.top_features import TopFeatures, top_features

__all__ = [
    "CorruptionCurve",
    "DeletionCurve",
    "DeletionCurveDisplay",
    "Explanation",
    "RowExplanation",
    "TopFeatures",
    "corruption_curve",
    "deletion_curve",
    "explain",
    "top_features",
]
