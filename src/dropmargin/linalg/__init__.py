"""Products with the data matrix: the only package that asks whether ``X`` is sparse.

``blocks`` multiplies rows of ``X`` (dense or CSR) and of an element-wise function of ``X``; ``partitions``
cuts a matrix into blocks of rows and runs a function on each, in a fixed order, on one thread or several.
"""

from dropmargin.linalg.blocks import Block, DenseBlock, SparseBlock, map_entries, row_blocks, stack_blocks
from dropmargin.linalg.partitions import Partitions, PerPartition
from dropmargin.linalg.summary import canonical, entry_range, large_offset, linear_scores, worst_column

__all__ = [
    "Block",
    "DenseBlock",
    "Partitions",
    "PerPartition",
    "SparseBlock",
    "canonical",
    "entry_range",
    "large_offset",
    "linear_scores",
    "map_entries",
    "row_blocks",
    "stack_blocks",
    "worst_column",
]
