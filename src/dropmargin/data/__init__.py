"""Products with the data matrix: the only package that asks whether ``X`` is sparse.

``matrix`` splits a matrix into blocks of rows, ``dense`` or ``csr``, which compute products with ``X`` and with an
element-wise function of ``X`` in one pass. ``partitions`` applies a function to each block and adds the results in a
fixed order, wherever the blocks are.
"""

from dropmargin.data.blocks import Block, EntryFunction, SquaredDeviation, apply_entry
from dropmargin.data.columns import add_scaled, column_dots
from dropmargin.data.csr import SparseBlock, group_sums, rows_for_descent
from dropmargin.data.dense import DenseBlock
from dropmargin.data.groups import Cells, FeatureGroups, GroupDirection, GroupOperand, GroupSums
from dropmargin.data.kernels import DualDescent
from dropmargin.data.matrix import (
    as_dense,
    as_sparse,
    canonical,
    drop_empty_columns,
    entry_range,
    entry_rows,
    from_arrays,
    is_dense_matrix,
    linear_scores,
    map_entries,
    nonzero_entries,
    row_block,
    row_blocks,
    row_entries,
    stack_blocks,
    stack_rows,
    stores_zeros,
    to_arrays,
    worst_column,
)
from dropmargin.data.outputs import Output, binary_outputs, output_targets, target_weights
from dropmargin.data.partitions import LocalPartitions, Partitions, PerPartition, products
from dropmargin.data.rows import Rows, join_rows, one_partition, restrict_features, stored_entries, target_summary
from dropmargin.data.training import EncodedRows, OutputRows

__all__ = [
    "Block",
    "Cells",
    "DenseBlock",
    "DualDescent",
    "EncodedRows",
    "EntryFunction",
    "FeatureGroups",
    "GroupDirection",
    "GroupOperand",
    "GroupSums",
    "LocalPartitions",
    "Output",
    "OutputRows",
    "Partitions",
    "PerPartition",
    "Rows",
    "SparseBlock",
    "SquaredDeviation",
    "add_scaled",
    "apply_entry",
    "as_dense",
    "as_sparse",
    "binary_outputs",
    "canonical",
    "column_dots",
    "drop_empty_columns",
    "entry_range",
    "entry_rows",
    "from_arrays",
    "group_sums",
    "is_dense_matrix",
    "join_rows",
    "linear_scores",
    "map_entries",
    "nonzero_entries",
    "one_partition",
    "output_targets",
    "products",
    "restrict_features",
    "row_block",
    "row_blocks",
    "row_entries",
    "rows_for_descent",
    "stack_blocks",
    "stack_rows",
    "stored_entries",
    "stores_zeros",
    "target_summary",
    "target_weights",
    "to_arrays",
    "worst_column",
]
