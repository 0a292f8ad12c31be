"""One table and one plot of the results: ``python -m benchmarks.overview``.

It reads the JSON files in ``results/``, prints the table and draws ``results/overview.png``.
"""

from __future__ import annotations

import json
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.cases import CASES
from benchmarks.peers import OURS
from benchmarks.report import RESULTS

_PEER = "LinearSVC hinge"
# Time over that of the peer, one thread: what DropoutSVC and DropoutLogisticRegression are to reach.
_AIMS = {
    "books": (1.7, 1.2),
    "kitchen": (1.7, 1.2),
    "news20": (0.3, 0.25),
    "mnist": (0.25, 0.25),
    "wide": (0.35, 0.35),
    "tall": (0.15, 0.15),
}

_TICKS = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0]


def read(name: str) -> dict[str, Any] | None:
    """Return a stored result, or None."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def ratios(result: dict[str, Any]) -> tuple[float, float]:
    """Return the times of our two classifiers over that of the peer in the same run."""
    (peer,) = (row for row in result["rows"] if row["model"] == _PEER)
    return peer["ratio_svc"], peer["ratio_logistic"]


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the results as a Markdown table."""
    lines = [
        "| case | SVC | aim | logistic | aim | passes | extra memory | scores over peer's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        rows = {row["model"]: row for row in result["rows"]}
        ours, peer = [rows[model] for model in OURS], rows[_PEER]
        found, aims = ratios(result), _AIMS[name.split("-")[0]]
        cells = [name, f"{found[0]:.2f}", f"{aims[0]:g}", f"{found[1]:.2f}", f"{aims[1]:g}"]
        cells.append(", ".join(f"{row['passes']:.1f}" for row in ours))
        cells.append(", ".join("" if row.get("memory") is None else f"{row['memory']:.2f} X" for row in ours))
        cells.append(f"{ours[0]['prediction'] / peer['prediction']:.2f}" if ours[0].get("prediction") else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(results: dict[str, dict[str, Any]], growth: dict[str, Any] | None) -> None:
    """Draw the ratios of all cases and, beside them, the growth of the time with the number of rows."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", width_ratios=[2, 1])
    names = list(results)
    for k, model in enumerate(OURS):
        heights = [ratios(results[name])[k] for name in names]
        bars = axes[0].bar(np.arange(len(names)) + 0.4 * k - 0.2, heights, width=0.38, label=model)
        axes[0].bar_label(bars, fmt="%.2f", fontsize=8)
    axes[0].axhline(1.0, color="black", linewidth=0.8)
    axes[0].set(yscale="log", xticks=range(len(names)), xticklabels=names, ylabel=f"time of a fit / {_PEER}")
    axes[0].set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes[0].tick_params(axis="y", which="minor", left=False, labelleft=False)
    axes[0].legend()
    if growth is not None:
        n_rows, seconds = ([row[key] for row in growth["rows"]] for key in ("n_rows", "seconds"))
        axes[1].loglog(n_rows, seconds, "o-", label=f"DropoutSVC, exponent {growth['slope']:.2f}")
        axes[1].loglog(n_rows, seconds[0] * np.array(n_rows) / n_rows[0], "--", color="grey", label="exponent 1")
        axes[1].set(xlabel="rows, 80 words each", ylabel="seconds")
        axes[1].legend()
    figure.savefig(RESULTS / "overview.png", dpi=120)


def main() -> None:
    names = [name for case in CASES for name in (case, f"{case}-2threads")]
    results = {name: result for name in names if (result := read(name)) is not None and "command" in result}
    print(table(results))
    draw({name: result for name, result in results.items() if "-" not in name}, read("growth"))


if __name__ == "__main__":
    main()
