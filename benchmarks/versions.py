"""Two versions of the package side by side: ``python -m benchmarks.versions --folder FOLDER books mnist``.

The folder has the other version (a checkout's ``src``, or a folder of ``pip install --target``), built. Each version
runs in a process of its own, which loads the data once; fits alternate between the two, and the best processor time of
each counts. A ratio below 1 means that this version is faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.cases import CASES, Case

_HERE = str(Path(__file__).parents[1] / "src")


def models(case: Case, n_features: int) -> dict[str, Callable[[], Any]]:
    """Return the models to compare, in the parameters of either version.

    Both drop features to zero where the name does not say otherwise: 0.1.0 has no references and no groups.
    """
    import dropmargin
    from dropmargin import DropoutLogisticRegression, DropoutSVC

    is_first = hasattr(dropmargin, "Dropout")

    def noise(**parameters: Any) -> Any:
        return case.noise if is_first else dropmargin.DropoutNoise(case.noise, **parameters)

    noisy: dict[str, Any] = {"noise": noise(reference="zero"), "C": case.C}
    l1: dict[str, Any] = {"penalty": "l1"} if is_first else {"l1_ratio": 1.0}
    found = {
        "SVC": lambda: DropoutSVC(**noisy),
        "logistic": lambda: DropoutLogisticRegression(**noisy),
        "SVC normal score": lambda: DropoutSVC(**noisy, approximation="gaussian"),
        "SVC no noise": lambda: DropoutSVC(noise=None, C=case.C),
        "SVC l1": lambda: DropoutSVC(**noisy, **l1),
        "logistic l1": lambda: DropoutLogisticRegression(**noisy, **l1),
        "SVC mean": lambda: DropoutSVC(noise=noise(), C=case.C),
        "SVC groups": lambda: DropoutSVC(noise=noise(groups=np.arange(n_features) // 10), C=case.C),
    }
    return {name: model for name, model in found.items() if not (is_first and name in ("SVC mean", "SVC groups"))}


def work(folder: str, name: str) -> None:
    """Fit the models that are asked for on standard input; this is the process of one version."""
    sys.path.insert(0, folder)
    case = CASES[name]
    X, y, *_ = case.load()
    made = models(case, X.shape[1])
    print(json.dumps(list(made)), flush=True)
    for line in sys.stdin:
        model = made[line.strip()]()
        begun = time.process_time()
        model.fit(X, y)
        seconds = time.process_time() - begun
        print(json.dumps([seconds, float(model.n_passes_), float(model.objective_)]), flush=True)


def compare(name: str, other: str, repeats: int, only: list[str]) -> list[dict[str, Any]]:
    """Print and return a row for each model of a case."""
    rows = []
    command = [sys.executable, "-m", "benchmarks.versions", "--worker", name, "--folder"]
    processes = [
        subprocess.Popen([*command, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for folder in (_HERE, other)
    ]
    known = [json.loads(process.stdout.readline()) for process in processes]  # type: ignore[union-attr]
    for model in only or [model for model in known[0] if model in known[1]]:
        best: list[list[float]] = [[], []]
        for _ in range(repeats):
            for process, own in zip(processes, best, strict=True):
                assert process.stdin is not None
                assert process.stdout is not None
                print(model, file=process.stdin, flush=True)
                found = json.loads(process.stdout.readline())
                own[:] = found if not own or found[0] < own[0] else own
        (mine, passes, value), (theirs, other_passes, other_value) = best
        print(
            f"{name:8s} {model:17s} {mine:8.3f} s {theirs:8.3f} s  ratio {mine / theirs:5.2f}  passes {passes:6.1f} "
            f"{other_passes:6.1f}  objective {value:.6g} {other_value:.6g}",
            flush=True,
        )
        row = {"case": name, "model": model, "seconds": mine, "passes": passes, "objective": value}
        rows.append(row | {"other_seconds": theirs, "other_passes": other_passes, "other_objective": other_value})
    for process in processes:
        process.communicate()
    return rows


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("--worker", metavar="CASE", help=argparse.SUPPRESS)
    parser.add_argument("--folder", required=True, help="the other version")
    parser.add_argument("cases", nargs="*", default=["books", "kitchen"], help="cases of the benchmarks")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="names of models")
    options = parser.parse_args()
    if options.worker:
        work(options.folder, options.worker)
        return
    print("case     model             this version  other version")
    for name in options.cases:
        rows = compare(name, options.folder, options.repeats, options.only)
        results.write("versions", rows, key=("case", "model"))


if __name__ == "__main__":
    main()
