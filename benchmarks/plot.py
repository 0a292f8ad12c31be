"""The plot of the README: mean test error against the share of lost columns, from the stored results.

``python -m benchmarks.plot`` reads ``results/lost_columns.jsonl``, writes
``docs/images/error_by_lost_columns.svg`` and prints the table of the README. It measures nothing;
`benchmarks.lost_columns` does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dropmargin.plotting.style import LEGEND, LINE, by_height, line_style, tidy
from dropmargin.report import draw_svg

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).parent / "results" / "lost_columns.jsonl"
PLOT = ROOT / "docs" / "images" / "error_by_lost_columns.svg"
SHOWN = ("dropmargin", "boosting, deleted cells", "boosting")
# Their error is in the units of the target.
REGRESSIONS = ("diabetes", "diamonds", "flights")


def mean_errors() -> tuple[dict[str, dict[float, float]], int]:
    """Return the mean error of each method by the share of columns lost, and the number of tables.

    Tables of classes that all methods have been measured on.
    """
    lines = [json.loads(text) for text in STORED.read_text(encoding="utf-8").splitlines()]
    rows = [line for line in lines if line.get("kind") == "columns" and line["table"] not in REGRESSIONS]
    errors: dict[str, dict[float, dict[str, float]]] = {}
    for row in rows:
        errors.setdefault(row["method"], {}).setdefault(row["share"], {})[row["table"]] = row["error"]
    tables = set.intersection(*(set(own) for shares in errors.values() for own in shares.values()))
    means = {
        method: {share: sum(own[table] for table in tables) / len(tables) for share, own in shares.items()}
        for method, shares in errors.items()
    }
    return means, len(tables)


def description() -> str:
    """Return the numbers of the plot as text, for readers who do not see it."""
    means, n_tables = mean_errors()
    parts = [f"{name}: {', '.join(f'{error:.3f}' for error in means[name].values())}" for name in SHOWN]
    shares = ", ".join(f"{share:.0%}" for share in means[SHOWN[0]])
    return f"Mean test error over {n_tables} tables with {shares} of the columns lost. {'. '.join(parts)}."


def draw(figure: Any) -> None:
    """Draw the plot on a Matplotlib figure."""
    means, n_tables = mean_errors()
    ax = figure.add_subplot()
    for index, name in enumerate(SHOWN):
        ax.plot([*means[name]], [*means[name].values()], label=name, **line_style(index), **LINE)
    tidy(ax, [ax.xaxis, ax.yaxis])
    ax.set(xlabel="columns lost at prediction", ylabel=f"mean test error, {n_tables} tables", ylim=(0.0, None))
    ax.legend(handles=by_height(ax.lines), loc="upper left", **LEGEND)


def markdown() -> str:
    """Return the mean errors as a table; the lowest of each share is bold."""
    means, _ = mean_errors()
    shares = list(next(iter(means.values())))
    lines = [f"| columns lost | {' | '.join(f'{share:.0%}' for share in shares)} |", "|---" * (len(shares) + 1) + "|"]
    lowest = {share: min(own[share] for own in means.values()) for share in shares}
    for name in sorted(means, key=lambda name: sum(means[name].values())):
        cells = [f"{means[name][share]:.3f}".removeprefix("0") for share in shares]
        shown = [f"**{cell}**" if means[name][s] == lowest[s] else cell for cell, s in zip(cells, shares, strict=True)]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    """Write the plot and print the table."""
    title = "Test error by the share of columns lost"
    PLOT.write_text(
        draw_svg(draw, title=title, description=description(), size=(5.2, 3.2), standalone=True) + "\n",
        encoding="utf-8",
    )
    print(f"{PLOT.relative_to(ROOT)}\n\n{markdown()}")


if __name__ == "__main__":
    main()
