"""Fits to data that do not fit into memory: from files or memory-mapped arrays, block by block."""

from dropmargin.streaming.fitting import fit, prepare_files

__all__ = ["fit", "prepare_files"]
