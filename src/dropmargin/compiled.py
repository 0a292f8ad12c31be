"""Compiled code, if it was built when the package was installed; everything works without it, more slowly."""

from __future__ import annotations

import ctypes
import os
import warnings
from pathlib import Path

#: The number that the C code must have: it changes with the arguments of a C function.
ABI = 4

#: Why a library is not in use, by its path.
problems: dict[Path, str] = {}


def load_library(path: Path) -> ctypes.CDLL | None:
    """Return a library, or ``None`` if it is not there, not for this machine and version, or not wanted.

    The environment variable ``DROPMARGIN_KERNELS=0`` turns compiled code off.
    """
    if os.environ.get("DROPMARGIN_KERNELS") == "0":
        problems[path] = "turned off by DROPMARGIN_KERNELS=0"
    elif not path.exists():
        problems[path] = "not built: there was no working C compiler when dropmargin was installed"
    else:
        try:
            library = ctypes.CDLL(str(path))
            abi = library.dropmargin_abi()
        except (OSError, AttributeError):  # built for another machine, or by a version without the number
            abi = None
        if abi == ABI:
            return library
        problems[path] = "built for another machine or another version of dropmargin"
    return None


def warn_if_missing(path: Path) -> None:
    """Warn once if a library is not in use, unless it is turned off on purpose."""
    problem = problems.get(path)
    if problem is None or problem in _WARNED or os.environ.get("DROPMARGIN_KERNELS") == "0":
        return
    _WARNED.add(problem)
    warnings.warn(
        f"The compiled kernels of dropmargin are not in use ({problem}). Fits to sparse rows give the same results, "
        "but take several times as long. Install a C compiler and then dropmargin again (pip install "
        "--force-reinstall --no-deps dropmargin), or set the environment variable DROPMARGIN_KERNELS=0 to use none "
        "without this warning.",
        UserWarning,
        stacklevel=3,
    )


_WARNED: set[str] = set()
