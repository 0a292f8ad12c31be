"""Noises, counts and tables as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dropmargin.noise import as_noise
from dropmargin.typing import Array


def noise_text(noise: Any) -> str:
    """Return a noise as the option ``--noise`` takes it; of a parameter per feature, the number of features."""
    noise = as_noise(noise)  # a model may store a number
    if noise is None or noise.variance().is_zero:
        return "none"
    kind = type(noise).__name__.removesuffix("Noise").lower()
    if noise.level_name is None:
        return kind
    level = noise.level
    return f"{kind}={float(level):g}" if np.ndim(level) == 0 else f"{kind} of {np.size(level)} features"


def label_texts(classes: Array) -> list[str]:
    """Return labels as text; numbers have all their digits."""
    return [label if isinstance(label, str) else repr(label) for label in classes.tolist()]


def plural(n: int, noun: str) -> str:
    """Return ``1 row`` or ``2 rows``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def table_text(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return a table with columns of equal width; the first ``left`` columns are left-aligned, the others right."""
    cells = [header, *rows]
    widths = [max(len(row[j]) for row in cells) for j in range(len(header))]
    lines = []
    for row in cells:
        padded = [
            cell.ljust(width) if j < left else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)
