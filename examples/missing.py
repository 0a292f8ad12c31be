"""Features that are gone at prediction: two rules for their scores against mean imputation; how sure is a prediction?

Usage: python examples/missing.py            on the digits that come with scikit-learn
       python examples/missing.py FOLDER     on MNIST, where FOLDER has its four files in mnist

All models are trained on whole images, and tested on images of which 30 to 80 % of the pixels are NaN. Then the
probabilities of `predict_stability` are compared with what happens in draws from the noise.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from dropmargin import DropoutNoise, DropoutSVC

SHARES = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9)
STRUCK = 0.5  # the rate of dropout that predictions are to survive


def digits(seed: int) -> tuple:
    """Return images and labels to learn from, and to test on."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16.0, y, test_size=0.5, random_state=seed, stratify=y)
    return X_train, y_train, X_test, y_test


def mnist(folder: Path) -> tuple:
    """Return images and labels to learn from, and to test on."""
    parts = []
    for name in ("train", "t10k"):
        images = gzip.decompress((folder / "mnist" / f"{name}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((folder / "mnist" / f"{name}-labels-idx1-ubyte.gz").read_bytes())
        parts.append((np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784) / 255.0).astype(np.float32))
        parts.append(np.frombuffer(labels, np.uint8, offset=8))
    return tuple(parts)


def models(noise: float, C: float, svc_C: float) -> dict:
    """Return the models to compare, by name."""
    return {
        'DropoutSVC(missing="conditional")': DropoutSVC(noise=noise, C=C, missing="conditional"),
        'DropoutSVC(missing="rescale")': DropoutSVC(noise=noise, C=C, missing="rescale"),
        "mean imputation, DropoutSVC": make_pipeline(SimpleImputer(), DropoutSVC(noise=noise, C=C)),
        "mean imputation, LinearSVC": make_pipeline(SimpleImputer(), LinearSVC(C=svc_C)),
    }


def errors(fitted: dict, X: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """Return the test error of every model at every share of NaN; all models meet the same ones."""
    rng, out = np.random.default_rng(seed), np.empty((len(fitted), len(SHARES)))
    for column, share in enumerate(SHARES):
        gone = X.copy()
        gone[rng.uniform(size=X.shape) < share] = np.nan
        out[:, column] = [1.0 - model.score(gone, y) for model in fitted.values()]
    return out


def show_calibration(model: DropoutSVC, X: np.ndarray, n_draws: int) -> None:
    """Print predicted against realised survival, in ten bins."""
    predicted = model.predict_stability(X, STRUCK)
    rng, labels = np.random.RandomState(0), model.predict(X)
    realised = np.mean([model.predict(DropoutNoise(STRUCK).sample(X, rng)) == labels for _ in range(n_draws)], axis=0)
    guaranteed_share = model.predict_stability(X, STRUCK, "guaranteed")
    print(f"\nlabels of {len(X)} test rows that survive the loss of {STRUCK:.0%} of the pixels, {n_draws} draws")
    print("predicted      rows   mean predicted   mean realised")
    bins, gaps = np.minimum((10.0 * predicted).astype(int), 9), []
    for b in np.unique(bins):
        left, right = predicted[bins == b].mean(), realised[bins == b].mean()
        gaps.append(abs(left - right))
        print(f"{b / 10:.1f} to {(b + 1) / 10:.1f}   {np.sum(bins == b):5d}   {left:14.3f}   {right:13.3f}")
    print(
        f"mean absolute error of the bins {np.mean(gaps):.3f}, of the rows {np.mean(np.abs(predicted - realised)):.3f}"
    )
    print(f"the guaranteed bound is above the realised share by at most {np.max(guaranteed_share - realised):.3f}")


def main(folder: Path | None) -> None:
    if folder is None:
        data, settings, n_draws = [digits(seed) for seed in range(5)], {"noise": 0.1, "C": 1.0, "svc_C": 0.01}, 1000
    else:
        data, settings, n_draws = [mnist(folder)], {"noise": 0.3, "C": 0.01, "svc_C": 0.01}, 1000
    total = 0.0
    for seed, (X_train, y_train, X_test, y_test) in enumerate(data):
        fitted = {name: model.fit(X_train, y_train) for name, model in models(**settings).items()}
        total = total + errors(fitted, X_test, y_test, seed)
    print(f"{len(X_train)} images to learn from, {len(X_test)} to test on, {settings}, mean of {len(data)} splits\n")
    print("test error at a share of NaN of    " + "".join(f"{share:8.0%}" for share in SHARES))
    for name, row in zip(fitted, total / len(data), strict=True):
        print(f"{name:35s}" + "".join(f"{error:8.3f}" for error in row))
    show_calibration(fitted['DropoutSVC(missing="rescale")'], X_test[:1000], n_draws)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
