"""The dropout noise of the papers."""

from __future__ import annotations

from dropmargin.noise import DropoutNoise


def blankout(rate: float) -> DropoutNoise:
    """Return dropout noise that sets features to zero, as in all experiments of the papers."""
    return DropoutNoise(rate, reference="zero")
