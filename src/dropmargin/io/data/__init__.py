"""Reading data files, and turning tables and text into numbers."""

from dropmargin.io.data.dataset import Dataset, Frame, ReadOptions
from dropmargin.io.data.errors import DataFormatError
from dropmargin.io.data.readers import FORMATS, find_format, read_chunks, read_data
from dropmargin.io.data.table_encoder import TableEncoder
from dropmargin.io.data.text_encoder import TextEncoder

__all__ = [
    "FORMATS",
    "DataFormatError",
    "Dataset",
    "Frame",
    "ReadOptions",
    "TableEncoder",
    "TextEncoder",
    "find_format",
    "read_chunks",
    "read_data",
]
