"""How numbers, noises and labels are written for people."""

from __future__ import annotations

from typing import Any

import numpy as np


def noise_text(noise: Any) -> str:
    """Return a noise as the option ``--noise`` takes it; rates of single features are counted."""
    from dropmargin.noise import as_noise  # not at the top: it imports scikit-learn

    noise = as_noise(noise)  # a model may have a number
    if noise is None or noise.variance().is_zero:
        return "none"
    kind = type(noise).__name__.removesuffix("Noise").lower()
    values = list(noise.get_params(deep=False).values())
    if not values:
        return kind
    size = np.size(values[0])
    return f"{kind}={float(np.asarray(values[0])):g}" if np.ndim(values[0]) == 0 else f"{kind} of {size} features"


def size_text(n_bytes: int) -> str:
    """Return a size in bytes, kB or MB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} bytes"


def plural(n: int, what: str, many: str | None = None) -> str:
    """Return ``1 row`` or ``2 rows``."""
    return f"{n} {what}" if n == 1 else f"{n} {many or what + 's'}"


def table_text(header: list[str], rows: list[list[str]], *, left: int = 1) -> str:
    """Return a table in columns of equal width, the first ``left`` of them to the left and the others to the right."""
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
