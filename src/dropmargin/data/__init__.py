"""Products with the data matrix: the only package that asks whether ``X`` is sparse.

``matrix`` cuts a matrix into blocks of rows, ``dense`` or ``csr``, which multiply with ``X`` and with an element-wise
function of ``X`` in one sweep; ``partitions`` is the seam: a function on each block, sums in a fixed order, wherever
the blocks are.
"""

from dropmargin.data.blocks import Block, EntryFunction
from dropmargin.data.columns import column_dots
from dropmargin.data.csr import SparseBlock, rows_for_descent
from dropmargin.data.dense import DenseBlock
from dropmargin.data.kernels import DualDescent
from dropmargin.data.matrix import (
    as_dense,
    as_sparse,
    canonical,
    column_counts,
    column_means,
    column_spreads,
    columns_worth_keeping,
    drop_empty_columns,
    entry_range,
    from_arrays,
    full_columns,
    has_full_columns,
    is_dense_matrix,
    keep_columns,
    large_offset,
    linear_scores,
    map_entries,
    mean_square,
    no_rows,
    nonzero_entries,
    offset_of,
    row_block,
    row_blocks,
    row_slice,
    stack_blocks,
    stack_rows,
    stores_zeros,
    subtract,
    to_arrays,
    worst_column,
)
from dropmargin.data.partitions import LocalPartitions, Partitions, PerPartition, local_parts

__all__ = [
    "Block",
    "DenseBlock",
    "DualDescent",
    "EntryFunction",
    "LocalPartitions",
    "Partitions",
    "PerPartition",
    "SparseBlock",
    "as_dense",
    "as_sparse",
    "canonical",
    "column_counts",
    "column_dots",
    "column_means",
    "column_spreads",
    "columns_worth_keeping",
    "drop_empty_columns",
    "entry_range",
    "from_arrays",
    "full_columns",
    "has_full_columns",
    "is_dense_matrix",
    "keep_columns",
    "large_offset",
    "linear_scores",
    "local_parts",
    "map_entries",
    "mean_square",
    "no_rows",
    "nonzero_entries",
    "offset_of",
    "row_block",
    "row_blocks",
    "row_slice",
    "rows_for_descent",
    "stack_blocks",
    "stack_rows",
    "stores_zeros",
    "subtract",
    "to_arrays",
    "worst_column",
]
