"""Readers of data files."""

from dropmargin.io.data.dataset import Dataset, ReadOptions
from dropmargin.io.data.errors import DataFormatError
from dropmargin.io.data.readers import FORMATS, MATRICES, find_format, read_chunks, read_data

__all__ = [
    "FORMATS",
    "MATRICES",
    "DataFormatError",
    "Dataset",
    "ReadOptions",
    "find_format",
    "read_chunks",
    "read_data",
]
