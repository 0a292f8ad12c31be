"""Rows and products with them: the only package that asks whether ``X`` is sparse.

``training`` has all rows of a fit, ``blocks`` the rows of an objective, dense or CSR, with the variance of their
entries, and ``kernels`` compiled sweeps over CSR rows. ``partitions`` is the seam: a function applied to every
partition, and the sum of the results, wherever the rows are.
"""

from dropmargin.data.blocks import (
    Block,
    DenseChunk,
    FeatureGroups,
    Rows,
    SparseChunk,
    join_rows,
    one_partition,
    slice_rows,
)
from dropmargin.data.kernels import CompiledRows, DualDescent
from dropmargin.data.matrix import (
    as_dense,
    as_sparse,
    canonical,
    drop_empty_columns,
    entry_range,
    entry_rows,
    from_arrays,
    group_sums,
    is_dense_matrix,
    linear_scores,
    map_entries,
    nonzero_entries,
    row_entries,
    stack_rows,
    stores_zeros,
    to_arrays,
    worst_column,
)
from dropmargin.data.outputs import Output, binary_outputs, output_targets, target_weights
from dropmargin.data.partitions import LocalPartitions, Partitions
from dropmargin.data.training import Columns, TrainingData
from dropmargin.data.variance import Variance

__all__ = [
    "Block",
    "Columns",
    "CompiledRows",
    "DenseChunk",
    "DualDescent",
    "FeatureGroups",
    "LocalPartitions",
    "Output",
    "Partitions",
    "Rows",
    "SparseChunk",
    "TrainingData",
    "Variance",
    "as_dense",
    "as_sparse",
    "binary_outputs",
    "canonical",
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
    "row_entries",
    "slice_rows",
    "stack_rows",
    "stores_zeros",
    "target_weights",
    "to_arrays",
    "worst_column",
]
