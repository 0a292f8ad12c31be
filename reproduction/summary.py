"""The summary of an experiment: the text, charts, tables and claims of its report.

An experiment's `summarise` turns the measurements of its results log into a `Summary`; `reproduction.report`
renders that as a page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Series:
    """A line of a chart: ours, drawn solid, or a published one, drawn dashed.

    Series of the same ``method`` have the same colour. Values that are ``None`` are not drawn.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    method: str
    published: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines over a common axis.

    ``slug`` is its file name. With ``x_names``, the ticks of the axis are at 0, 1, 2, ... and have these labels (for
    example 1, 4 and 16 copies, and infinity), and ``x`` has positions on this axis.
    """

    slug: str
    title: str
    caption: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_names: Sequence[str] | None = None


@dataclass(frozen=True)
class Comparison:
    """A table of errors: our measurements and the published numbers of each row.

    Parameters
    ----------
    caption : str
    columns : sequence of str
        Levels or kinds of noise.
    rows : mapping of str to a pair of sequences
        Our numbers and the published ones by method; ``None`` if a number is missing.
    """

    caption: str
    columns: Sequence[str]
    rows: Mapping[str, tuple[Sequence[float | None], Sequence[float | None]]]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or a target of this project: whether it holds here, and the numbers."""

    text: str
    holds: bool
    evidence: str


@dataclass(frozen=True)
class Summary:
    """The results of an experiment.

    Parameters
    ----------
    title : str
    verdict : sequence of str
        Paragraphs: what agrees with the paper, what does not, and why.
    charts : sequence of Chart
    comparisons : sequence of Comparison
    claims : sequence of Claim
    settings : mapping of str to str
        Data, parameter grids and choices, as text.
    seconds : float
    """

    title: str
    verdict: Sequence[str]
    charts: Sequence[Chart]
    comparisons: Sequence[Comparison]
    claims: Sequence[Claim]
    settings: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def three_digits(error: float) -> str:
    """Return an error rate as the papers print it: ``.158``."""
    return f"{error:.3f}".removeprefix("0")


def four_digits(error: float) -> str:
    """Return an error rate with four digits, which show one wrong document of thousands: ``.1581``.

    The evidence of a claim has four digits, so that the printed numbers agree with whether the claim holds.
    """
    return f"{error:.4f}".removeprefix("0")


def in_points(difference: float) -> str:
    """Return a difference of error rates in points of a percent: ``2.85 points``."""
    return f"{100.0 * difference:.2f} points"


def standard_error(error: float, n_test: int) -> float:
    """Return the standard error ``sqrt(e (1 - e) / n)`` of an error rate measured on ``n_test`` rows."""
    return math.sqrt(error * (1.0 - error) / n_test)
