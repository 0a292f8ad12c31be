"""The plot of the README: mean test error against the share of lost columns, from the stored results.

``python -m benchmarks.plot`` reads ``results/lost_columns.jsonl`` and writes
``docs/images/error_by_lost_columns.svg``. It measures nothing; `benchmarks.lost_columns` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.tables import ROOT, lost_column_means, select
from dropmargin.plotting.style import LEGEND, LINE, by_height, line_style, tidy
from dropmargin.report import draw_svg

PLOT = ROOT / "docs" / "images" / "error_by_lost_columns.svg"
SHOWN = ("dropmargin", "boosting, deleted cells", "boosting")


def lines() -> dict[str, list[dict[str, Any]]]:
    """Return the points of each line."""
    means = lost_column_means(results.read("lost_columns"))
    return {name: select(means, method=name) for name in SHOWN}


def description() -> str:
    """Return the numbers of the plot as text, for readers who do not see it."""
    ours, *_ = found = [*lines().values()]
    parts = [f"{own[0]['method']}: {', '.join(format(row['error'], '.3f') for row in own)}" for own in found]
    shares = ", ".join(f"{row['share']:.0%}" for row in ours)
    return f"Mean test error over {ours[0]['tables']} tables with {shares} of the columns lost. {'. '.join(parts)}."


def draw(figure: Any) -> None:
    """Draw the plot on a Matplotlib figure."""
    ax, found = figure.add_subplot(), lines()
    for index, (name, own) in enumerate(found.items()):
        x, y = [row["share"] for row in own], [row["error"] for row in own]
        ax.plot(x, y, label=name, **line_style(index), **LINE)
    tidy(ax, [ax.xaxis, ax.yaxis])
    n_tables = found[SHOWN[0]][0]["tables"]
    ax.set(xlabel="columns lost at prediction", ylabel=f"mean test error, {n_tables} tables", ylim=(0.0, None))
    ax.legend(handles=by_height(ax.lines), loc="upper left", **LEGEND)


def write(path: Path = PLOT) -> None:
    """Write the plot."""
    svg = draw_svg(
        draw,
        title="Test error by the share of columns lost",
        description=description(),
        size=(5.2, 3.2),
        standalone=True,
    )
    path.write_text(svg + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
