"""Products with the data matrix: the only package that asks whether ``X`` is sparse.

``matrix`` cuts a matrix into blocks of rows, ``dense`` or ``csr``, which multiply with ``X`` and with an element-wise
function of ``X`` in one sweep; ``partitions`` runs a function on each block, in a fixed order, on one or more threads.
"""

from dropmargin.linalg.blocks import Block
from dropmargin.linalg.columns import column_dots
from dropmargin.linalg.csr import SparseBlock, can_descend
from dropmargin.linalg.dense import DenseBlock
from dropmargin.linalg.kernels import DualDescent
from dropmargin.linalg.matrix import (
    canonical,
    drop_empty_columns,
    entry_range,
    large_offset,
    linear_scores,
    map_entries,
    mean_square,
    row_blocks,
    row_slice,
    shares_products,
    stack_blocks,
    stack_rows,
    worst_column,
)
from dropmargin.linalg.partitions import Partitions, PerPartition

__all__ = [
    "Block",
    "DenseBlock",
    "DualDescent",
    "Partitions",
    "PerPartition",
    "SparseBlock",
    "can_descend",
    "canonical",
    "column_dots",
    "drop_empty_columns",
    "entry_range",
    "large_offset",
    "linear_scores",
    "map_entries",
    "mean_square",
    "row_blocks",
    "row_slice",
    "shares_products",
    "stack_blocks",
    "stack_rows",
    "worst_column",
]
