"""Readers of data files, and encoders of tables and text."""

from dropmargin.io.data.dataset import Dataset, ReadOptions
from dropmargin.io.data.errors import DataFormatError
from dropmargin.io.data.frame_encoder import FrameEncoder
from dropmargin.io.data.readers import FORMATS, TABLES, find_format, read_chunks, read_data
from dropmargin.io.data.table_encoder import TableEncoder
from dropmargin.io.data.text_encoder import TextEncoder

__all__ = [
    "FORMATS",
    "TABLES",
    "DataFormatError",
    "Dataset",
    "FrameEncoder",
    "ReadOptions",
    "TableEncoder",
    "TextEncoder",
    "find_format",
    "read_chunks",
    "read_data",
]
