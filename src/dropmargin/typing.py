"""The one type name that the package shares: an array, of any kind of numbers."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
