"""A fit on a Dask cluster of this machine against the same fit in threads, and the cost of a pass without products.

python -m benchmarks.dask_scaling [--rows 1000000] [--partitions 8] [--rounds 3] [--folder FOLDER]

The case `tall` (synthetic documents, 50,000 words, 80 a row), as npz files that the workers load. Fits alternate, to
rows that are in the memory of the workers or of the process, after a small fit that loads the code. The fixed cost of a
pass is that of a fit to very few rows. The times of single sums by the width of their arrays, and of graphs by their
number of tasks, are for `benchmarks.scaling`. Results go to results/dask.json and dask.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster, wait
from distributed.diagnostics.plugin import SchedulerPlugin
from scipy import sparse

from benchmarks import report
from benchmarks.cases import text
from dropmargin import DropoutSVC
from dropmargin.dask import fit
from dropmargin.dask.partitions import DaskPartitions
from dropmargin.data import Rows

_WIDTHS = (1_000, 100_000, 300_000)
_PROBES = 7
_TASKS = (2, 100)
_MEMORY_SETTINGS = {
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**29,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25,
}


def write_parts(folder: Path, X: Any, y: Any, n_parts: int) -> list[Path]:
    """Write the rows as files of nearly equal size, unless they are there."""
    paths = []
    for i, own in enumerate(np.array_split(np.arange(X.shape[0]), n_parts)):
        path = folder / f"{X.shape[0]}-{n_parts}-{i}.npz"
        if not path.exists():
            rows = X[own[0] : own[-1] + 1]
            np.savez(path, data=rows.data, indices=rows.indices, indptr=rows.indptr, shape=rows.shape, y=y[own])
        paths.append(path)
    return paths


def load(path: Path) -> tuple[Any, Any]:
    """Return rows and labels of a file."""
    with np.load(path) as arrays:
        rows = sparse.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
        return rows, arrays["y"]


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the time of a call, and its result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.perf_counter()
        result = function()
        return time.perf_counter() - begin, result


def measure_fits(X: Any, y: Any, folder: Path, n_parts: int, rounds: int) -> dict[str, Any]:
    """Return the times of fits in two threads and on clusters of one and of two workers, alternating."""
    paths = write_parts(folder, X, y, n_parts)
    options = {"noise": 0.5, "C": 0.01}
    clusters = {"1 worker": 1, "2 workers": 2}
    times: dict[str, list[float]] = {name: [] for name in ("2 threads", *clusters)}
    passes, messages, coefs = {}, {}, {}
    for _ in range(rounds):
        spent, model = seconds(lambda: DropoutSVC(**options, n_jobs=2).fit(X, y))
        times["2 threads"].append(spent)
        passes["2 threads"] = model.n_passes_
        for name, n_workers in clusters.items():
            with cluster(n_workers) as local, Client(local) as client:
                parts = [dask.delayed(load)(path) for path in paths]
                pairs = client.persist(parts)
                wait(pairs)
                fit_tiny(client, len(paths))  # code is loaded, too
                counter = MessageCounter(local)
                spent, model = seconds(lambda pairs=pairs: fit(DropoutSVC(**options), pairs, progress=False))
            times[name].append(spent)
            messages[name] = counter.n_messages
            passes[name], coefs[name] = model.n_passes_, model.coef_
    assert np.array_equal(coefs["1 worker"], coefs["2 workers"])
    return {"seconds": times, "passes": passes, "messages": messages}


class MessageCounter(SchedulerPlugin):
    """Counts the messages with tasks that the scheduler of a local cluster receives."""

    name = "message-counter"

    def __init__(self, local: LocalCluster) -> None:
        self.n_messages = 0
        local.scheduler.add_plugin(self)

    def update_graph(self, *_: Any, **__: Any) -> None:
        self.n_messages += 1


def cluster(n_workers: int) -> LocalCluster:
    """Return a cluster of processes of one thread, with the memory settings that docs/large_data.md recommends."""
    with dask.config.set(_MEMORY_SETTINGS):
        return LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0")


def small_rows(number: int) -> Rows:
    """Return a hundred rows of ten features."""
    rng = np.random.default_rng(number)
    X = rng.normal(size=(100, 10))
    return Rows(X, np.where(X[:, 0] + rng.normal(size=100) > 0, 1, 0))


def answer(rows: Rows, w: np.ndarray) -> tuple[np.ndarray]:
    """Return an array of the size of the argument."""
    return (w * len(rows.y),)


def fit_tiny(client: Client, n_parts: int) -> float:
    """Fit a model to very few rows in the memory of the workers, and return the seconds of a pass."""
    pairs = client.persist([dask.delayed((rows.X, rows.y)) for rows in map(small_rows, range(n_parts))])
    wait(pairs)
    model = DropoutSVC(noise=0.5, C=0.01)
    spent, _ = seconds(lambda: fit(model, pairs, progress=False))
    return spent / model.n_passes_


def measure_overhead(n_parts: int, n_workers: int = 2) -> dict[str, Any]:
    """Return the fixed cost of a pass, and the time of a single sum by the width of its arrays."""
    with cluster(n_workers) as local, Client(local) as client:
        parts = [dask.delayed(small_rows, pure=False)(i) for i in range(n_parts)]
        data: DaskPartitions[Rows] = DaskPartitions(client, client.compute(parts, sync=False))
        probes = {}
        for width in _WIDTHS:
            w = np.ones(width)
            data.map_sum(answer, w)
            probes[str(width)] = sorted(seconds(lambda w=w: data.map_sum(answer, w))[0] for _ in range(_PROBES))
        fits = [fit_tiny(client, n_parts) for _ in range(5)]
    return {"n_workers": n_workers, "seconds per sum by width": probes, "seconds per pass of a tiny fit": fits}


def nothing(part: Any) -> None:
    """Do nothing."""


def measure_tasks() -> dict[str, float]:
    """Return the time until a graph of tasks that do nothing is done and fetched, by their number."""
    found = {}
    with cluster(2) as local, Client(local) as client:
        for n_tasks in _TASKS:

            def run(n_tasks: int = n_tasks) -> Any:
                name = f"nothing-{time.perf_counter()}"
                graph = {f"{name}-{k}": (nothing, k) for k in range(n_tasks)}
                return client.gather(client.get(graph, list(graph), sync=False))

            run()
            found[str(n_tasks)] = min(seconds(run)[0] for _ in range(_PROBES))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the files of the rows are kept")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    X, y, _, _ = text(options.rows, 50_000, 80, n_test=10)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True, parents=True)
        fits = measure_fits(X, y, folder, options.partitions, options.rounds)
    overheads = [measure_overhead(options.partitions, n) for n in (1, 2)]
    best = {name: min(own) for name, own in fits["seconds"].items()}
    result = {
        "rows": options.rows,
        "stored": int(X.nnz),
        "partitions": options.partitions,
        **fits,
        "overhead": overheads,
        "seconds of a graph by tasks": measure_tasks(),
        "load average before": load_before,
    }
    result["machine"] = report.machine()
    shown = [arg for arg in sys.argv[1:] if arg not in ("--folder", str(options.folder))]
    result["command"] = " ".join(["python -m benchmarks.dask_scaling", *shown])
    report.RESULTS.mkdir(exist_ok=True)
    (report.RESULTS / "dask.json").write_text(json.dumps(result, indent=1) + "\n")
    (report.RESULTS / "dask.md").write_text(markdown(result, best))
    print(markdown(result, best))


def markdown(result: dict[str, Any], best: dict[str, float]) -> str:
    """Return the tables."""
    info = result["machine"]
    lines = [
        "# Dask on one machine",
        "",
        f"`tall` with {result['rows']:,} rows, {result['partitions']} partitions, DropoutSVC, noise 0.5, C 0.01. "
        f"`{result['command']}`, {info['cores']} cores of {info['cpu']}, "
        f"dask {dask.__version__}. "
        f"Load average before {result['load average before']:.1f}.",
        "",
        "| fit | best s (runs) | passes | messages | s per pass |",
        "|---|---|---|---|---|",
    ]
    for name, own in result["seconds"].items():
        passes = result["passes"][name]
        sent = result["messages"].get(name, "")
        lines.append(f"| {name} | {best[name]:.2f} ({len(own)}) | {passes:.1f} | {sent} | {best[name] / passes:.3f} |")
    if result["load average before"] > 1.5:
        lines += ["", "The load was above 1.5 before: other work, or an earlier run, may have been in the way."]
    ratio = best["2 workers"] / best["2 threads"]
    lines += ["", f"Two workers take {ratio:.2f} times as long as two threads.", ""]
    lines += ["| workers | tiny fit, ms per pass | " + " | ".join(f"sum of {w:,} doubles, ms" for w in _WIDTHS) + " |"]
    lines += ["|---|---|" + "---|" * len(_WIDTHS)]
    for own in result["overhead"]:
        sums = " | ".join(f"{1e3 * own['seconds per sum by width'][str(w)][0]:.1f}" for w in _WIDTHS)
        lines.append(f"| {own['n_workers']} | {1e3 * min(own['seconds per pass of a tiny fit']):.1f} | {sums} |")
    times = result["seconds of a graph by tasks"]
    bare = ", of ".join(f"{n} tasks {1e3 * own:.1f} ms" for n, own in times.items())
    lines += ["", f"Dask itself: a graph of {bare}, for tasks that do nothing; best of {_PROBES}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
