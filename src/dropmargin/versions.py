"""Versions of what the package runs on, for reports of problems."""

from __future__ import annotations

import importlib.metadata
import platform
import sys

_PACKAGES = (
    "dropmargin", "numpy", "scipy", "scikit-learn", "joblib", "threadpoolctl", "tqdm", "safetensors",
    "click", "pandas", "pyarrow", "matplotlib", "dask", "distributed", "onnx", "skl2onnx",
)  # fmt: skip


def show_versions() -> None:
    """Print the versions of Python, of dropmargin and its dependencies, and whether compiled code is in use.

    See Also
    --------
    sklearn.show_versions : The same for scikit-learn, with its BLAS libraries.

    Examples
    --------
    >>> import dropmargin
    >>> dropmargin.show_versions()  # doctest: +ELLIPSIS
    python ...
    """
    from dropmargin import compiled
    from dropmargin.data import kernels

    print(f"{'python':16s}{platform.python_version()} ({sys.executable})")
    print(f"{'machine':16s}{platform.platform()}")
    for name in _PACKAGES:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        print(f"{name:16s}{version}")
    print(f"{'kernels':16s}{compiled.problems.get(kernels.LIBRARY_PATH, 'compiled')}")
