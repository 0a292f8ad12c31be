"""Coverage of intervals and sets on tables whose cells are missing at prediction.

python -m benchmarks.coverage [TABLE ...]

Half of the rows, at most 2,000, are for training, as many for the test. Each test row loses a number of features that
is drawn uniformly, or none; the coverage of intervals and sets for 90 % is that of the rows that lack a share of 0, up
to a third, up to two thirds, and more. Tables of up to 2,500 rows are split ten times, others three times. Numbers:
diabetes, diamonds, midwest (poverty of counties), txhousing, and a column of magic and of spambase given the others,
most of them not normal. Labels: the tables of `benchmarks.missing_cells`. Peers: the normal law (``conformal=False``)
and, for numbers, ridge regression with mean imputation and split-conformal intervals from a fifth of the training rows,
which are complete. Prints Markdown tables, and writes results/coverage.jsonl, in place of earlier lines of a table.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import results as stored
from benchmarks.lost_columns import KEEL, SKLEARN, read
from dropmargin import DropoutRidgeCV, DropoutSVCCV

NUMBERS = ("diabetes", "diamonds", "midwest", "txhousing", "magic column", "spambase column")
LABELS = ("cancer", "segment", "phoneme", "magic", "spambase", "wine")
COVERAGE, MOST_ROWS, SHARES = 0.9, 2000, ("none", "to 1/3", "to 2/3", "more")
OPTIONS = {"missing": "conditional", "target_noise": 0.3, "noises": 4, "Cs": 7, "conformal": True, "verbose": 0}


def load(table: str) -> tuple[Any, Any]:
    """Return features and targets."""
    if table == "diabetes":
        return load_diabetes(return_X_y=True)
    if table in KEEL or table in SKLEARN:
        frame, y = read(table)
        return frame.to_numpy(float), y
    if table.endswith(" column"):
        X = read(table.split()[0])[0].to_numpy(float)
        return X[:, 1:], X[:, 0]
    if table == "diamonds":
        frame, y = read(table)
        ranks = {"cut": "Fair,Good,Very Good,Premium,Ideal", "color": "J,I,H,G,F,E,D"}
        ranks["clarity"] = "I1,SI2,SI1,VS2,VS1,VVS2,VVS1,IF"
        for name, order in ranks.items():
            frame[name] = frame[name].map({own: rank for rank, own in enumerate(order.split(","))})
        return frame.to_numpy(float), y
    spec = importlib.util.find_spec("plotnine")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the package plotnine is not installed: pip install 'dropmargin[bench]'")
    frame = pd.read_csv(Path(spec.origin).parent / "data" / f"{table}.csv").dropna()
    if table == "txhousing":
        return frame.drop(columns=["city", "median"]).to_numpy(float), np.log(frame["median"].to_numpy(float))
    others = ["PID", *(name for name in frame if "poverty" in name or "povert" in name)]
    return frame.select_dtypes("number").drop(columns=others).to_numpy(float), frame["percbelowpoverty"].to_numpy(float)


def splits(X: Any, y: Any) -> Iterator[tuple[Any, ...]]:
    """Yield standardised training rows, test rows with their shares of missing features, and their targets."""
    n_rows = min(len(y) // 2, MOST_ROWS)
    for seed in range(10 if len(y) <= 2500 else 3):
        of_class = y if y.dtype.kind not in "f" else None
        rows, test, own, of_test = train_test_split(
            X, y, train_size=n_rows, test_size=n_rows, random_state=seed, stratify=of_class
        )
        scaler, rng = StandardScaler().fit(rows), np.random.default_rng(seed)
        test = np.concatenate([scaler.transform(test)] * 4)
        counts = rng.integers(1, X.shape[1], size=len(test), endpoint=True)
        counts[:n_rows] = 0
        test[rng.random(test.shape).argsort(axis=1).argsort(axis=1) < counts[:, None]] = np.nan
        shares = np.ceil(3.0 * counts / X.shape[1]).astype(int)
        yield scaler.transform(rows), own, test, np.tile(of_test, 4), shares


def intervals(X: Any, y: Any, test: Any) -> Iterator[tuple[str, Any]]:
    """Yield the lower and the upper ends of each method with its name."""
    model = DropoutRidgeCV(**OPTIONS).fit(X, y)
    yield "conformal", model.predict_interval(test, COVERAGE)
    yield "normal", model.best_estimator_.set_params(conformal=False).predict_interval(test, COVERAGE)
    n_rows = len(y) * 4 // 5
    ridge = make_pipeline(SimpleImputer(), RidgeCV(np.logspace(-3, 4, 15))).fit(X[:n_rows], y[:n_rows])
    errors = np.sort(np.abs(y[n_rows:] - ridge.predict(X[n_rows:])))
    half = errors[min(len(errors), int(np.ceil((len(errors) + 1) * COVERAGE))) - 1]
    yield "means, split-conformal", ridge.predict(test)[:, None] + [-half, half]


def sets(X: Any, y: Any, test: Any) -> Iterator[tuple[str, Any]]:
    """Yield the labels of ``classes_`` that each method includes, with its name."""
    ours = DropoutSVCCV(**OPTIONS).fit(X, y)
    yield "conformal", ours.predict_set(test, COVERAGE)
    yield "conformal, may be empty", ours.predict_set(test, COVERAGE, allow_empty=True)
    n_rows, classes = len(y) * 4 // 5, np.unique(y)
    linear = LogisticRegressionCV(Cs=np.logspace(-3, 2, 6), cv=3, max_iter=2000)
    model = make_pipeline(SimpleImputer(), linear).fit(X[:n_rows], y[:n_rows])
    own = model.predict_proba(X[n_rows:])[np.arange(len(y) - n_rows), np.searchsorted(classes, y[n_rows:])]
    least = np.sort(own)[::-1][int(np.ceil((len(own) + 1) * COVERAGE)) - 1]
    found = model.predict_proba(test)
    yield "means, split-conformal", (found >= least) | (found == found.max(axis=1, keepdims=True))


def measure(table: str) -> Iterator[dict[str, Any]]:
    """Yield coverage and mean size for each method and share of missing features."""
    X, y = load(table)
    if table in LABELS:
        y = np.asarray(y).astype(str)
    found: dict[str, list[Any]] = {}
    for rows, own, test, of_test, shares in splits(X, y):
        for method, ends in (sets if table in LABELS else intervals)(rows, own, test):
            if table in LABELS:
                is_in = ends[np.arange(len(test)), np.searchsorted(np.unique(y), of_test)]
                size = ends.sum(axis=1)
            else:
                is_in = (ends[:, 0] <= of_test) & (of_test <= ends[:, 1])
                size = (ends[:, 1] - ends[:, 0]) / np.std(y)
            parts = [[own[shares == share].mean() for share in range(len(SHARES))] for own in (is_in, size)]
            found.setdefault(method, []).append(parts)
    for method, parts in found.items():
        coverage, size = np.mean(parts, axis=0).round(4).tolist()
        result = {"coverage": coverage, "size": size, "n_splits": len(parts), "n_train": len(own)}
        yield {"table": table, "method": method, **result}


def markdown(results: list[dict[str, Any]], tables: Any) -> str:
    """Return coverages in per cent (and mean sizes) for each share of missing features, a row per table."""
    own = [one for one in results if one["table"] in tables]
    methods = list(dict.fromkeys(one["method"] for one in own))
    lines = ["| table | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for table in dict.fromkeys(one["table"] for one in own):
        found = {one["method"]: one for one in own if one["table"] == table}
        pairs = [zip(found[method]["coverage"], found[method]["size"], strict=True) for method in methods]
        cells = [" ".join(f"{100 * share:.1f} ({size:.2f})" for share, size in own) for own in pairs]
        lines.append(f"| {table} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(tables: list[str]) -> None:
    """Measure tables, store the results, and print those of all tables."""
    warnings.simplefilter("ignore")
    for table in tables or (*NUMBERS, *LABELS):
        for row in measure(table):
            print(json.dumps(row), flush=True)
            stored.write("coverage", [row], key=("table", "method"))
    for own in (NUMBERS, LABELS):
        print(markdown(stored.read("coverage"), own), end="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
