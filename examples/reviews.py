"""The README's table: test errors on the Amazon reviews of the paper, settings chosen by cross-validation.

Usage: python examples/reviews.py FOLDER, where FOLDER has the four files {books,kitchen}_{train,test}.svmlight.gz
(5,000 word counts).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

from dropmargin import DropoutLogisticRegression, DropoutSVC

CS = {"C": 10.0 ** np.arange(-4, 1.5, 0.5)}
NOISES = {"noise": [0.1, 0.3, 0.5, 0.7, 0.9]}
MODELS = {
    "LinearSVC, hinge": (LinearSVC(loss="hinge", max_iter=20_000), CS),
    "LinearSVC, squared hinge": (LinearSVC(max_iter=20_000), CS),
    "LogisticRegression": (LogisticRegression(max_iter=2_000), CS),
    "DropoutSVC": (DropoutSVC(), CS | NOISES),
    "DropoutLogisticRegression": (DropoutLogisticRegression(), CS | NOISES),
}


def main(folder: Path) -> None:
    print("| test error | books | kitchen | chosen (books; kitchen) |\n|---|---|---|---|")
    for name, (model, grid) in MODELS.items():
        errors, chosen = [], []
        for domain in ("books", "kitchen"):
            X, y = load_svmlight_file(folder / f"{domain}_train.svmlight.gz", n_features=5000, zero_based=True)
            X_test, y_test = load_svmlight_file(folder / f"{domain}_test.svmlight.gz", n_features=5000, zero_based=True)
            for matrix in (X, X_test):  # LIBLINEAR takes 32-bit indices only
                matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
            search = GridSearchCV(model, grid, cv=5, n_jobs=2).fit(X, y)
            errors.append(1.0 - search.score(X_test, y_test))
            chosen.append(", ".join(f"{key} {value:.2g}" for key, value in sorted(search.best_params_.items())))
        print(f"| {name} | {errors[0]:.3f} | {errors[1]:.3f} | {'; '.join(chosen)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="The folder with the four files; the reviews may not be distributed.")
    main(parser.parse_args().folder)
