"""Tables: from a raw data frame to a model that survives the loss of columns."""

from dropmargin.tables.cells import ColumnRule
from dropmargin.tables.columns import CategoryEncoder, DateEncoder, NumberEncoder, TextEncoder
from dropmargin.tables.encoder import Column, TableEncoder
from dropmargin.tables.fourier import FourierFeatures
from dropmargin.tables.models import TableClassifier, TableRegressor

__all__ = [
    "CategoryEncoder",
    "Column",
    "ColumnRule",
    "DateEncoder",
    "FourierFeatures",
    "NumberEncoder",
    "TableClassifier",
    "TableEncoder",
    "TableRegressor",
    "TextEncoder",
]
