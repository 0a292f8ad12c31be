"""Which features a fitted model relies on: of each class, and of each row, and how many must vanish for a flip."""

from dropmargin.explanation.features import TopFeatures, top_features
from dropmargin.explanation.rows import Explanation, RowExplanation, explain

__all__ = ["Explanation", "RowExplanation", "TopFeatures", "explain", "top_features"]
