"""A cost model of a fit on a cluster, fitted to results/dask.json, and what it says of clusters that we do not have.

python -m benchmarks.scaling

A pass is a product with ``X`` and one with its transpose. The time of a fit on ``M`` machines of ``c`` cores is

    passes * a * entries * columns / (M * c * e)           products; e: what is left of c cores that share their memory
    + questions * (t0 + t_task * n_tasks)                  the scheduler sees every task
    + questions * columns * width * 16 bytes / bandwidth * hops    coefficients out and sums back, by a tree of machines

``t0``, ``t_task`` and ``a`` are measured on one machine with one and two workers; the network's bandwidth, the number
of cores and ``e`` are assumptions, and printed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import report

# Questions per pass without a start from a sample, counted in fits to 30,000 and 100,000 rows of `tall`: 19 in 13.5
# passes and 18 in 12.5; for the logistic loss 12 in 9 and 11 in 8.
_ROUNDS = 1.4
# Mean and variance: two columns of doubles for each class.
BYTES = 16


@dataclass(frozen=True)
class Costs:
    """What was measured, in seconds.

    Parameters
    ----------
    entry : per stored entry of a pass, one core, one class
    round_trip, task : per round trip to the scheduler, and per task of it
    byte : per byte that goes through the scheduler to the client and back, of one sum
    """

    entry: float
    round_trip: float
    task: float
    byte: float


@dataclass(frozen=True)
class Cluster:
    """What is assumed of a cluster."""

    machines: int
    cores: int
    bandwidth: float  # bytes a second and machine
    efficiency: float = 0.5  # of all cores of a machine together: they share its memory


@dataclass(frozen=True)
class Work:
    """What is to be fitted."""

    rows: float
    features: float
    per_row: float
    classes: int
    passes: float
    questions: float


def fit_costs(result: dict[str, Any]) -> Costs:
    """Return the costs that explain the measurements."""
    by_tasks = {int(n): own for n, own in result["seconds of a graph by tasks"].items()}
    few, many = min(by_tasks), max(by_tasks)
    task = (by_tasks[many] - by_tasks[few]) / (many - few)
    own = next(probe for probe in result["overhead"] if probe["n_workers"] == 2)
    by_width = {int(width): times[0] for width, times in own["seconds per sum by width"].items()}
    narrow, wide = min(by_width), max(by_width)
    byte = (by_width[wide] - by_width[narrow]) / (_moved(wide, result) - _moved(narrow, result))
    round_trip = by_width[narrow] - 2 * task
    messages = result["messages"]["1 worker"] * (round_trip + task + _moved(2 * 50_000, result) * byte)
    products = (min(result["seconds"]["1 worker"]) - messages) / result["passes"]["1 worker"]
    return Costs(products / result["stored"], round_trip, task, byte)


def _moved(width: int, result: dict[str, Any]) -> int:
    """Return the bytes that a sum of so many doubles moves, if no partition has a neighbour on its worker."""
    return 8 * width * (2 + result["partitions"])


def predict_fit(costs: Costs, n_workers: int, result: dict[str, Any]) -> float:
    """Return the seconds of the measured fit, by the model: its test on two workers."""
    message = costs.round_trip + n_workers * costs.task + _moved(2 * 50_000, result) * costs.byte
    products = costs.entry * result["stored"] / n_workers
    return result["messages"]["2 workers"] * message + result["passes"]["2 workers"] * products


def simulate(costs: Costs, cluster: Cluster, work: Work) -> dict[str, float]:
    """Return the seconds of a fit by what they are spent on."""
    n_tasks = 2 * cluster.machines - 1  # with the tree of sums
    hops = np.ceil(np.log2(cluster.machines)) if cluster.machines > 1 else 1.0
    send = BYTES * work.features * work.classes / cluster.bandwidth
    speed = cluster.machines * cluster.cores * cluster.efficiency
    return {
        "products": work.passes * costs.entry * work.rows * work.per_row * work.classes / speed,
        "scheduler": work.questions * (costs.round_trip + n_tasks * costs.task),
        "coefficients out": work.questions * send * hops,
        "sums back": work.questions * send * (hops + 2.0),
    }


def main() -> None:
    result = json.loads((report.RESULTS / "dask.json").read_text())
    costs = fit_costs(result)
    passes, questions = (result[name]["2 workers"] for name in ("passes", "messages"))
    lines = [
        "# The cost model",
        "",
        f"Fitted to `dask.json` ({result['rows']:,} rows of `tall`, {passes:.1f} passes, {questions} questions): "
        f"{1e9 * costs.entry:.2f} ns per entry and pass on one core, {1e3 * costs.round_trip:.1f} ms per round trip, "
        f"{1e3 * costs.task:.2f} ms per task, {1e9 * costs.byte:.2f} ns per byte through the scheduler. "
        f"The fit on two workers: {predict_fit(costs, 2, result):.2f} s by the model, "
        f"{min(result['seconds']['2 workers']):.2f} s measured.",
        "",
        "Seconds of a fit, simulated:",
        "",
        "| rows x features, classes | machines x cores | products | scheduler | W out | sums back | fit, as measured "
        f"| fit of 100 passes, {_ROUNDS * 100:.0f} questions |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for rows, features, classes in ((1e8, 1e5, 1), (1e9, 1e6, 1), (1e9, 1e6, 20), (1e9, 1e6, 1000)):
        for machines, cores in ((1, 16), (10, 16), (100, 16), (1000, 16)):
            cluster = Cluster(machines, cores, 1.25e9)
            own = simulate(costs, cluster, Work(rows, features, 80, classes, passes, questions))
            long = simulate(costs, cluster, Work(rows, features, 80, classes, 100, 100 * _ROUNDS))
            spent = " | ".join(f"{value:,.1f}" for value in (*own.values(), sum(own.values()), sum(long.values())))
            lines.append(f"| {rows:.0e} x {features:.0e}, {classes} | {machines} x {cores} | {spent} |")
    lines += ["", "Assumed: 80 entries a row, 10 Gbit/s per machine, half of the speed of all cores."]
    (report.RESULTS / "scaling.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
