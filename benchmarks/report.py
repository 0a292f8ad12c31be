"""The report of a benchmark: JSON for machines, Markdown for people."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    names = ("numpy", "scipy", "scikit-learn", "dropmargin")
    cpu = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in names},
    }


def save(result: dict[str, Any]) -> tuple[Path, str]:
    """Write a case's result as JSON and Markdown; return the path of the latter and its text."""
    RESULTS.mkdir(exist_ok=True)
    name = result["case"]
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result)
    path = RESULTS / f"{name}.md"
    path.write_text(text)
    return path, text


def markdown(result: dict[str, Any]) -> str:
    """Return a table of the models."""
    info = result["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in info["versions"].items())
    lines = [
        f"# {result['case']}",
        "",
        f"{result['data']}. `{result['command']}`, "
        f"{info['cores']} cores of {info['cpu']}, Python {info['python']}, {versions}.",
        "",
    ]
    if "slope" in result:
        lines += ["| rows | DropoutSVC, s |", "|---|---|"]
        lines += [f"| {row['n_rows']:,} | {row['seconds']:.3f} |" for row in result["rows"]]
        lines += ["", f"Slope of log time against log rows: **{result['slope']:.2f}**.", ""]
        return "\n".join(lines)
    lines += [
        "| model | C | best s (runs) | SVC ratio | logistic ratio | passes | gap | error | extra memory | scores, ms |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    # A ratio is the time of DropoutSVC, or of DropoutLogisticRegression, over that of the model in the row.
    for row in result["rows"]:
        cells = [
            row["model"],
            f"{row['C']:g}",
            f"{row['seconds']:.4g} ({row['runs']})",
            _cell(row.get("ratio_svc"), "{:.2f}"),
            _cell(row.get("ratio_logistic"), "{:.2f}"),
            _cell(row.get("passes"), "{:.1f}"),
            _cell(row.get("gap"), "{:.1e}"),
            f"{row['error']:.4f}",
            _cell(row.get("memory"), "{:.2f} X"),
            _cell(None if row.get("prediction") is None else 1e3 * row["prediction"], "{:.3g}"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
