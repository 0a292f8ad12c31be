"""The backends of the seam, for the conformance suite: each makes `Partitions` of the same parts.

To add one, write a function that takes a list of `Rows` and a temporary folder and yields the partitions, and name it
in `BACKENDS`. Its rows count as elsewhere (``is_local=False``), and it must agree with `reference` to the last bit.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial

from dropmargin.classifiers.partitioned import Rows
from dropmargin.linalg import LocalPartitions, canonical


def reference(parts):
    """Return the partitions that all others must agree with: in this process, one after the other."""
    return LocalPartitions(parts, is_local=False)


@contextmanager
def _serial(parts, folder):
    with reference(parts) as data:
        yield data


@contextmanager
def _threads(n_threads, parts, folder):
    with LocalPartitions(parts, n_threads, is_local=False) as data:
        yield data


@contextmanager
def _fetched(parts, folder):
    """Rows that come anew each time they are asked for, and are never the same object."""
    fetched = [Rows(partial(_copy, canonical(rows.X)), rows.y, rows.weights) for rows in parts]
    with LocalPartitions(fetched, 2, is_local=False) as data:
        yield data


def _copy(X):
    return X.copy()


#: Name to context manager of (parts, folder).
BACKENDS = {
    "serial": _serial,
    "2 threads": partial(_threads, 2),
    "3 threads": partial(_threads, 3),
    "fetched rows": _fetched,
}
