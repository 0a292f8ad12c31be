"""Products with the data matrix: the only package that asks whether ``X`` is sparse.

``matrix`` splits a matrix into blocks of rows, ``dense`` or ``csr``, which compute products with ``X`` and with an
element-wise function of ``X`` in one pass. ``partitions`` applies a function to each block and adds the results in a
fixed order, wherever the blocks are.
"""

from dropmargin.data.blocks import Block, EntryFunction, SquaredDeviation, apply_entry
from dropmargin.data.columns import add_scaled, column_dots
from dropmargin.data.csr import SparseBlock, group_sums, rows_for_descent
from dropmargin.data.dense import DenseBlock
from dropmargin.data.groups import FeatureGroups, GroupDirection, GroupOperand, GroupSums
from dropmargin.data.kernels import DualDescent
from dropmargin.data.matrix import (
    as_dense,
    as_sparse,
    canonical,
    column_counts,
    column_means,
    column_variances,
    drop_empty_columns,
    entry_range,
    entry_rows,
    feature_means_far_from_zero,
    from_arrays,
    full_columns,
    has_full_columns,
    is_dense_matrix,
    keep_columns,
    linear_scores,
    map_entries,
    mean_square,
    means_to_subtract,
    no_rows,
    nonempty_features,
    nonzero_entries,
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
from dropmargin.data.outputs import Output, binary_outputs
from dropmargin.data.partitions import LocalPartitions, Partitions, PerPartition, products
from dropmargin.data.rows import Rows, TargetSummary, set_target_summary, target_summary
from dropmargin.data.training import BinaryArray, BinaryRows, ClassArray, ClassRows, NumberArray

__all__ = [
    "BinaryArray",
    "BinaryRows",
    "Block",
    "ClassArray",
    "ClassRows",
    "DenseBlock",
    "DualDescent",
    "EntryFunction",
    "FeatureGroups",
    "GroupDirection",
    "GroupOperand",
    "GroupSums",
    "LocalPartitions",
    "NumberArray",
    "Output",
    "Partitions",
    "PerPartition",
    "Rows",
    "SparseBlock",
    "SquaredDeviation",
    "TargetSummary",
    "add_scaled",
    "apply_entry",
    "as_dense",
    "as_sparse",
    "binary_outputs",
    "canonical",
    "column_counts",
    "column_dots",
    "column_means",
    "column_variances",
    "drop_empty_columns",
    "entry_range",
    "entry_rows",
    "feature_means_far_from_zero",
    "from_arrays",
    "full_columns",
    "group_sums",
    "has_full_columns",
    "is_dense_matrix",
    "keep_columns",
    "linear_scores",
    "map_entries",
    "mean_square",
    "means_to_subtract",
    "no_rows",
    "nonempty_features",
    "nonzero_entries",
    "products",
    "row_block",
    "row_blocks",
    "row_slice",
    "rows_for_descent",
    "set_target_summary",
    "stack_blocks",
    "stack_rows",
    "stores_zeros",
    "subtract",
    "target_summary",
    "to_arrays",
    "worst_column",
]
