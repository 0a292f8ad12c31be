"""Fits to data that do not fit into memory: from files or memory-mapped arrays, block by block."""

from dropmargin.streaming.files import find_files
from dropmargin.streaming.fit import fit_arrays, fit_files

__all__ = ["find_files", "fit_arrays", "fit_files"]
