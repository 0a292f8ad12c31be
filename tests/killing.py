"""A module ``os`` that kills its process before or after one of its calls: for the tests of saving."""

from __future__ import annotations

import os
import signal
from typing import Any

_CALLS = ("open", "write", "fsync", "link", "replace", "fchmod", "close")


class Killing:
    """Count the calls to the system, before and after each, and end by SIGKILL at the given count.

    A write writes 500 bytes at most, so that a file takes several.
    """

    def __init__(self, point: int) -> None:
        self.left = point

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in _CALLS:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "write":
                args = (args[0], args[1][:500])
            self.tick()
            result = found(*args, **kwargs)
            self.tick()
            return result

        return call

    def tick(self) -> None:
        """Count one, and end if that was the last."""
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
