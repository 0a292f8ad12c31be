"""FDROP, a baseline of the paper: the hinge loss under the worst deletion of features (Globerson and Roweis 2006)."""

from reproduction.fdrop.estimator import FDropSVC

__all__ = ["FDropSVC"]
