"""Compiled code, if it was built when the package was installed; everything works without it, more slowly."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path


def load_library(path: Path) -> ctypes.CDLL | None:
    """Return a library, or ``None`` if it is not there, not for this machine, or not wanted (DROPMARGIN_KERNELS=0)."""
    if os.environ.get("DROPMARGIN_KERNELS") == "0" or not path.exists():
        return None
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # built for another machine
        return None
