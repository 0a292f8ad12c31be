"""Fits to data that do not fit into memory: from files or memory-mapped arrays, block by block."""

from dropmargin.streaming.fit import fit_arrays, fit_files, prepare_files

__all__ = ["fit_arrays", "fit_files", "prepare_files"]
