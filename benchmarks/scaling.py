"""A cost model of a fit on a cluster, fitted to results/dask.json, and what it says of clusters that we do not have.

python -m benchmarks.scaling

A pass is a product with ``X`` and one with its transpose. Its time on ``M`` machines of ``c`` cores is

    rounds * (t0 + t_task * n_tasks)                       round trips to the scheduler, which sees every task
    + a * entries * columns / (M * c * e)                  products; e: what is left of c cores that share their memory
    + columns * width * 16 bytes / bandwidth * hops        coefficients out and sums back, along a tree of machines

``t0``, ``t_task`` and ``a`` are measured on one machine with one and two workers; the network's bandwidth, the number
of cores and ``e`` are assumptions, and printed. If the machine was busy when they were measured, stand-ins take their
place, and that is printed, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import report

# Sums and gathers per pass, each of which waits for the cluster, counted in fits to `tall` (35 and 2 in 15 passes, 33
# and 2 in 14): products, and line searches, offsets and stop rules, which read no rows.
ROUNDS = 2.5
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


#: If there is no measurement to be trusted. Per entry: processor time of a serial fit to 100,000 rows of `tall`. Per
#: round trip: that of a prototype with two workers on a quiet machine. Per task: assumed.
STAND_INS = Costs(entry=8.4e-9, round_trip=22e-3, task=1e-3, byte=0.0)


@dataclass(frozen=True)
class Cluster:
    """What is assumed of a cluster."""

    machines: int
    cores: int
    bandwidth: float  # bytes a second and machine
    efficiency: float = 0.5  # of all cores of a machine together: they share its memory
    threads_in_tasks: bool = False  # one task a machine, instead of one a core


@dataclass(frozen=True)
class Work:
    """What is to be fitted."""

    rows: float
    features: float
    per_row: float
    classes: int
    passes: float


def fit_costs(result: dict[str, Any]) -> Costs:
    """Return the costs that explain the measurements."""
    by_tasks = {int(n): own for n, own in result["seconds of a sum by tasks"].items()}
    few, many = min(by_tasks), max(by_tasks)
    task = max(0.0, (by_tasks[many] - by_tasks[few]) / (many - few))
    own = next(probe for probe in result["overhead"] if probe["n_workers"] == 2)
    by_width = {int(width): times[0] for width, times in own["seconds per sum by width"].items()}
    narrow, wide = min(by_width), max(by_width)
    moved = 8 * (wide - narrow) * (1 + result["partitions"])
    byte = (by_width[wide] - by_width[narrow]) / moved
    round_trip = max(0.0, by_width[narrow] - 2 * task)
    per_pass = min(result["seconds"]["1 worker"]) / result["passes"]["1 worker"]
    sums = 2 * 8 * 50_000 * (1 + result["partitions"]) * byte
    products = per_pass - ROUNDS * (round_trip + task) - sums
    return Costs(products / result["stored"], round_trip, task, byte)


def choose_costs(result: dict[str, Any]) -> tuple[Costs, str]:
    """Return the costs to go by, and where they are from: stand-ins, if the machine was busy when it was measured."""
    costs = fit_costs(result)
    shown = "{:.2f} ns per entry and pass on one core, {:.1f} ms per round trip, {:.2f} ms per task".format
    load = max(result["load average at begin and end"])
    if load > result["machine"]["cores"] or costs.entry <= 0.0:
        words = shown(1e9 * STAND_INS.entry, 1e3 * STAND_INS.round_trip, 1e3 * STAND_INS.task)
        return STAND_INS, (
            f"**The measurements in `dask.json` cannot be used**: the machine had a load of {load:.0f} on "
            f"{result['machine']['cores']} cores. Stand-ins, see `STAND_INS`: {words}."
        )
    words = shown(1e9 * costs.entry, 1e3 * costs.round_trip, 1e3 * costs.task)
    measured = min(result["seconds"]["2 workers"]) / result["passes"]["2 workers"]
    return costs, (
        f"From `dask.json`: {words}. A pass of the case on two workers: {predict_pass(costs, 2, result):.3f} s by the "
        f"model, {measured:.3f} s measured."
    )


def predict_pass(costs: Costs, n_workers: int, result: dict[str, Any]) -> float:
    """Return the seconds of a pass of the measured case, by the model: its test on two workers."""
    sums = 2 * 8 * 50_000 * (1 + result["partitions"]) * costs.byte
    return ROUNDS * (costs.round_trip + n_workers * costs.task) + sums + costs.entry * result["stored"] / n_workers


def simulate(costs: Costs, cluster: Cluster, work: Work) -> dict[str, float]:
    """Return the seconds of a pass by what they are spent on, and of a fit."""
    n_groups = cluster.machines * (1 if cluster.threads_in_tasks else cluster.cores)
    n_tasks = 2 * n_groups - 1  # with the tree of sums
    hops = np.ceil(np.log2(cluster.machines)) if cluster.machines > 1 else 1.0
    vector = BYTES * work.features * work.classes
    speed = cluster.machines * cluster.cores * cluster.efficiency
    spent = {
        "products": costs.entry * work.rows * work.per_row * work.classes / speed,
        "scheduler": ROUNDS * (costs.round_trip + n_tasks * costs.task),
        "coefficients out": vector / cluster.bandwidth * hops,
        "sums back": vector / cluster.bandwidth * hops + 2 * vector / cluster.bandwidth,
    }
    total = sum(spent.values())
    return spent | {"pass": total, "fit": total * work.passes, "memory of W": vector}


def main() -> None:
    result = json.loads((report.RESULTS / "dask.json").read_text())
    costs, source = choose_costs(result)
    passes = result["passes"]["2 workers"]
    lines = [
        "# The cost model",
        "",
        source,
        "",
        "| rows x features, classes | machines x cores | tasks | products | scheduler | W out | sums back | pass, s "
        f"| fit of {passes:.0f} passes | of 100 passes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for rows, features, classes in ((1e8, 1e5, 1), (1e9, 1e6, 1), (1e9, 1e6, 20), (1e9, 1e6, 1000)):
        for machines, cores, bundled in ((10, 16, False), (100, 16, False), (100, 16, True)):
            cluster = Cluster(machines, cores, 1.25e9, threads_in_tasks=bundled)
            own = simulate(costs, cluster, Work(rows, features, 80, classes, passes))
            lines.append(
                f"| {rows:.0e} x {features:.0e}, {classes} | {machines} x {cores} "
                f"| one a {'machine' if bundled else 'core'} | {own['products']:.2f} | {own['scheduler']:.2f} "
                f"| {own['coefficients out']:.2f} | {own['sums back']:.2f} | {own['pass']:.2f} | {own['fit']:.0f} s "
                f"| {100 * own['pass']:.0f} s |"
            )
    lines += ["", "Assumed: 80 entries a row, 10 Gbit/s per machine, half of the speed of all cores."]
    (report.RESULTS / "scaling.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
