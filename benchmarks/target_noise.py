"""What `target_noise` chooses when half of the features will be missing, and what it costs: digits and MNIST.

python -m benchmarks.target_noise [digits] [mnist] [--rows 10000] [--rounds 3]

A search over six dropout rates and three values of C, three folds, once on complete rows and once with
``target_noise=0.5``. Each chosen model is scored on test rows with half of the features missing; so is every point of
the grid, fitted to all training rows, to know the best.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.cases import mnist
from dropmargin import DropoutSVC, DropoutSVCCV, deletion_curve

NOISES = (0.0, 0.05, 0.1, 0.3, 0.5, 0.7)
CS = (0.01, 0.1, 1.0)
RATE = 0.5


def data(name: str, n_rows: int) -> list[Any]:
    """Return the training and test rows, and their labels."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        parts = train_test_split(X / 16.0, y, test_size=0.5, random_state=0, stratify=y)
        return [parts[0], parts[2], parts[1], parts[3]]
    X, y, X_test, y_test = mnist()
    X, _, y, _ = train_test_split(X, y, train_size=n_rows, random_state=0, stratify=y)
    return [X, y, X_test, y_test]


def accuracies(model: Any, X: Any, y: Any) -> list[float]:
    """Return the accuracy on complete rows, and with half of the features missing."""
    curve = deletion_curve(model, X, y, levels=[0.0, RATE], n_repeats=5, fill=float("nan"), random_state=0, verbose=0)
    return curve.mean.tolist()


def run(name: str, n_rows: int, rounds: int) -> None:
    """Print the choices, their accuracies and times, and the best point of the grid."""
    X, y, X_test, y_test = data(name, n_rows)
    print(f"\n{name}: {X.shape[0]} training rows, {X_test.shape[0]} test rows")
    seconds: dict[str, list[float]] = {}
    searches = {}
    for _ in range(rounds):
        for label, target in (("complete rows", None), (f"target_noise={RATE}", RATE)):
            search = DropoutSVCCV(noises=NOISES, Cs=CS, cv=3, target_noise=target, missing="rescale", verbose=0)
            began = time.process_time()
            searches[label] = search.fit(X, y)
            seconds.setdefault(label, []).append(time.process_time() - began)
    for label, search in searches.items():
        complete, incomplete = accuracies(search, X_test, y_test)
        print(
            f"{label}: noise {getattr(search.noise_, 'rate', 0.0)}, C {search.C_:g}: accuracy {complete:.4f} complete, "
            f"{incomplete:.4f} incomplete; {min(seconds[label]):.1f} s",
            flush=True,
        )
    best = (0.0, None, None)
    for noise in NOISES:
        for C in CS:
            model = DropoutSVC(noise=noise, C=C, missing="rescale").fit(X, y)
            best = max(best, (accuracies(model, X_test, y_test)[1], noise, C))
    plain, target = (min(spent) for spent in seconds.values())
    print(f"best of the grid: noise {best[1]}, C {best[2]}: {best[0]:.4f}; time of the search: {target / plain:.2f}")


def main() -> None:
    """Run the data sets of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.target_noise", description=__doc__)
    parser.add_argument("names", nargs="*", default=["digits", "mnist"], help="digits, mnist")
    parser.add_argument("--rows", type=int, default=10_000, help="training rows of MNIST")
    parser.add_argument("--rounds", type=int, default=3, help="times each search is run; the shortest counts")
    options = parser.parse_args()
    for name in options.names:
        run(name, options.rows, options.rounds)


if __name__ == "__main__":
    main()
