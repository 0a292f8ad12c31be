"""Choosing the noise and C, and two plots of the choice.

Usage: python examples/choosing.py [--output DIR]            on the digits that come with scikit-learn
       python examples/choosing.py FOLDER [--output DIR]     on reviews of books, where FOLDER has amazon20k

Cross-validates both losses over noise and C, prints what was chosen and its test error beside that of no noise, and
writes noise_path.png and noise_grid.png. The plots compare all points, so all are solved to the
full tolerance; without plots, leave prune at its default, which is faster.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dropmargin import DropoutLogisticRegressionCV, DropoutSVCCV, NoiseGridDisplay, NoisePathDisplay


def digits() -> tuple:
    """Return images to learn from and to test on, their labels, and the grid to choose from."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16.0, y, test_size=0.5, random_state=0, stratify=y)
    return X_train, y_train, X_test, y_test, [0.0, 0.01, 0.02, 0.05, 0.1, 0.2], np.logspace(-2, 2, 5)


def books(folder: Path) -> tuple:
    """Return reviews to learn from and to test on, their labels, and the grid to choose from."""
    parts = []
    for name in ("train", "test"):
        parts.append(sparse.csr_array(sparse.load_npz(folder / "amazon20k" / f"books_{name}_X.npz")))
        parts.append(np.load(folder / "amazon20k" / f"books_{name}_y.npy"))
    return *parts, np.round(np.linspace(0.0, 0.9, 10), 1), np.logspace(-3, 1, 9)


def report(name: str, model: DropoutSVCCV, X_test, y_test, plain_error: float) -> None:
    """Print what a model chose, and what that is worth."""
    print(
        f"{name}: chose a dropout rate of {model.noise_.rate:g} and C = {model.C_:.2g} with a cross-validated error of "
        f"{1.0 - model.best_score_:.4f}; test error {1.0 - model.score(X_test, y_test):.4f}, "
        f"without noise {plain_error:.4f}"
    )


def main(folder: Path | None, output: Path) -> None:
    matplotlib.use("Agg")
    X, y, X_test, y_test, noises, Cs = digits() if folder is None else books(folder)
    print(f"{X.shape[0]} rows of {X.shape[1]} features to learn from, {X_test.shape[0]} to test on")
    classes = {"Dropout-SVM": DropoutSVCCV, "Dropout-Logistic": DropoutLogisticRegressionCV}
    models = {}
    for name, cls in classes.items():
        models[name] = cls(noises=noises, Cs=Cs, prune=False, store_coefs=False).fit(X, y)
        plain = cls(noises=[None], Cs=Cs, prune=False, store_coefs=False).fit(X, y)
        report(name, models[name], X_test, y_test, 1.0 - plain.score(X_test, y_test))
    output.mkdir(parents=True, exist_ok=True)
    plots = {
        "noise_path": NoisePathDisplay.from_estimators(models),
        "noise_grid": NoiseGridDisplay.from_estimator(models["Dropout-SVM"]),
    }
    for name, display in plots.items():
        display.figure_.savefig(output / f"{name}.png", dpi=110, pil_kwargs={"optimize": True})
    print(f"wrote {', '.join(f'{name}.png' for name in plots)} to {output}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="the folder above amazon20k; the digits if left out")
    parser.add_argument("--output", type=Path, default=Path("."), help="where the plots go")
    arguments = parser.parse_args()
    main(arguments.folder, arguments.output)
