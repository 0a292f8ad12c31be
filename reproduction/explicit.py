"""Figure 3: a linear SVM on M corrupted copies of the reviews, compared with Dropout-SVM."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC

from dropmargin.estimators import DropoutSVC
from dropmargin.threads import one_blas_thread
from dropmargin.typing import Array
from reproduction import published
from reproduction.amazon import DOMAINS, forms_of, loader
from reproduction.datasets import Split
from reproduction.harness import Experiment, RunConfig
from reproduction.noise import blankout
from reproduction.results_log import ResultsLog, Task
from reproduction.summary import (
    Chart,
    Claim,
    Comparison,
    Series,
    Summary,
    four_digits,
    standard_error,
    three_digits,
)

_RATE = 0.7
_CS = (0.003, 0.01, 0.03, 0.1)
_N_FOLDS = 3
# Number of repetitions with other random copies, because the error of few copies is random.
_N_DRAWS = {1: 5, 2: 5, 4: 3, 8: 3}
_QUICK_COPIES = (1, 4, 16)
_INFINITY = "infinity"
# The reported time is the minimum over this many fits, because other processes on the machine slow some of them down.
_N_TIMED = 5
_CLOSE, _SHARE_OF_TIME = 0.004, 1.0 / 50.0


def tasks(config: RunConfig) -> list[Task]:
    """Return one task per domain and number of copies."""
    copies = _QUICK_COPIES if config.quick else published.COPIES
    found = []
    for domain in DOMAINS[:1] if config.quick else DOMAINS:
        form = forms_of(domain, config)[0]
        load = loader(domain, form, config)
        for n_copies in (0, *copies, _INFINITY):
            key = {"form": form, "domain": domain, "copies": n_copies, "rate": _RATE}
            found.append(Task(key, partial(_measure, config, load, n_copies)))
    return found


def corrupted(X: sparse.csr_array, n_copies: int, rng: np.random.RandomState) -> sparse.csr_array:
    """Return ``n_copies`` corrupted copies of the rows, stacked; ``X`` itself for 0 copies."""
    if n_copies == 0:
        return X
    noise = blankout(_RATE)
    copies = []
    for _ in range(n_copies):
        copy = sparse.csr_array(noise.sample(X, rng))
        copy.eliminate_zeros()  # on average 7 of 10 stored entries are zero
        copies.append(copy)
    return sparse.csr_array(sparse.vstack(copies, format="csr"))


def fit_copies(C: float, X: sparse.csr_array, y: Array, n_copies: int, seed: int) -> tuple[LinearSVC, float]:
    """Return the SVM that minimises ``C`` times the mean loss over the copies, and the CPU seconds of the fit."""
    rows, labels = corrupted(X, n_copies, np.random.RandomState(seed)), np.tile(y, max(1, n_copies))
    model = LinearSVC(loss="hinge", C=C / max(1, n_copies), max_iter=20_000, random_state=0)
    started = time.process_time()
    with one_blas_thread():
        model.fit(rows, labels)
    return model, time.process_time() - started


def fit_dropout(C: float, X: sparse.csr_array, y: Array, seed: int) -> tuple[DropoutSVC, float]:
    """Return Dropout-SVM, which needs no samples, and the CPU seconds of the fit."""
    started = time.process_time()
    model = DropoutSVC(noise=blankout(_RATE), C=C).fit(X, y)
    return model, time.process_time() - started


def _measure(config: RunConfig, load: Callable[[], Split], n_copies: int | str) -> dict[str, Any]:
    """Return the error of an SVM on copies, with ``C`` from cross-validation on copies of the training folds."""
    fit: Callable[..., tuple[Any, float]]
    if isinstance(n_copies, str):
        fit, n_draws, n_fits = fit_dropout, 1, _N_TIMED
    else:
        fit = partial(fit_copies, n_copies=n_copies)
        n_draws = n_fits = _N_DRAWS.get(n_copies, 1)
    data = load()
    X, y = data.X_train, data.y_train
    folds = list(StratifiedKFold(_N_FOLDS, shuffle=True, random_state=config.seed).split(X, y))

    def cv_error(C: float) -> float:
        return float(np.mean([1.0 - fit(C, X[a], y[a], seed=config.seed)[0].score(X[b], y[b]) for a, b in folds]))

    cv_errors = [cv_error(C) for C in _CS]
    C = _CS[int(np.argmin(cv_errors))]
    fits = [fit(C, X, y, seed=config.seed + draw) for draw in range(n_fits)]
    return {
        "errors": [1.0 - model.score(data.X_test, data.y_test) for model, _ in fits[:n_draws]],
        "cv_errors": cv_errors,
        "C": C,
        "fit_seconds": min(seconds for _, seconds in fits),
        "n_test": data.X_test.shape[0],
        "n_features": X.shape[1],
    }


# Summary -------------------------------------------------------------------------------------------------------------


class _Results:
    """The errors and times of one domain by the number of copies."""

    def __init__(self, log: ResultsLog, domain: str) -> None:
        found = {m.key["copies"]: m.result for m in log.select(domain=domain)}
        self.domain = domain
        self.form = log.select(domain=domain)[0].key["form"]
        self.infinity = found.pop(_INFINITY)
        self.plain = found.pop(0)
        self.copies = sorted(found)
        self.results = [found[n] for n in self.copies]
        self.errors = [float(np.mean(result["errors"])) for result in self.results]
        self.error = self.infinity["errors"][0]

    @property
    def plain_error(self) -> float:
        """The error of the SVM without noise."""
        return float(self.plain["errors"][0])

    @property
    def standard_error(self) -> float:
        """The standard error of the error of Dropout-SVM."""
        return standard_error(self.error, self.infinity["n_test"])

    @property
    def ratio(self) -> float:
        """The time of Dropout-SVM divided by that of the largest number of copies."""
        return float(self.infinity["fit_seconds"] / self.results[-1]["fit_seconds"])

    @property
    def by_name(self) -> dict[str, Mapping[str, Any]]:
        """All results by the number of copies as text."""
        return {"none": self.plain, **dict(zip(map(str, self.copies), self.results, strict=True)), "∞": self.infinity}


def summarise(log: ResultsLog) -> Summary:
    """Return error and time by the number of copies, and whether the paper's claims hold."""
    domains = dict.fromkeys(m.key["domain"] for m in log)
    every = [_Results(log, domain) for domain in domains]
    claims = [claim for own in every for claim in _claims(own)]
    return Summary(
        title="Explicit corruption (Figure 3)",
        verdict=_verdict(every),
        charts=[chart for own in every for chart in (_error_chart(own), _time_chart(own))],
        comparisons=[_comparison(own) for own in every],
        claims=claims,
        settings=_settings(every),
        seconds=log.seconds,
    )


def _settings(every: list[_Results]) -> dict[str, str]:
    draws = {name: len(result["errors"]) for name, result in every[0].by_name.items()}
    return {
        "Data": "; ".join(
            f"{own.domain}, {own.form}: {own.infinity['n_test']:,} test documents, "
            f"{own.infinity['n_features']:,} features, counts"
            for own in every
        ),
        "Noise": f"dropout, q = {_RATE:g}",
        "SVM on copies": "scikit-learn's LinearSVC, hinge loss, C shared by the copies; mean over several draws of "
        + (", ".join(f"{name} ({n})" for name, n in draws.items() if n > 1) or "no number of")
        + " copies, one draw of the others",
        "Choice of C": f"{_N_FOLDS}-fold cross-validation among {', '.join(f'{C:g}' for C in _CS)}. Chosen: "
        + "; ".join(
            f"{own.domain} " + ", ".join(f"{result['C']:g} ({name})" for name, result in own.by_name.items())
            for own in every
        ),
        "Seconds": "of the processor, for the fit alone, each solver at its own default tolerance: the copies are "
        f"drawn before; of Dropout-SVM the best of {_N_TIMED} fits, of the SVM the best of its draws",
    }


def _axis(own: _Results) -> tuple[range, list[str]]:
    """Return the positions of the numbers of copies on the axis, and their labels."""
    names = [*map(str, own.copies), "∞"]
    return range(len(names)), names


def _error_chart(own: _Results) -> Chart:
    places, names = _axis(own)
    series = [
        Series("SVM on M copies", places[:-1], own.errors, "copies"),
        Series("Dropout-SVM (M = ∞)", [places[0], places[-1]], [own.error] * 2, "Dropout-SVM"),
        Series("SVM without noise", [places[0], places[-1]], [own.plain_error] * 2, "none"),
    ]
    if own.domain == "books":
        papers = [published.EXPLICIT_MCF[n] for n in own.copies] + [published.EXPLICIT_MCF[math.inf]]
        series.append(Series("quadratic loss (MCF Figure 3)", places, papers, "copies", published=True))
    return Chart(
        slug=f"explicit-{own.domain}-error",
        title=f"{own.domain.capitalize()}: error",
        caption=f"Test error by the number of corrupted copies. The standard error of a point is "
        f"{own.standard_error:.3f}."
        + (" MCF's figure has the quadratic loss and 20,000 features." if own.domain == "books" else ""),
        x_label="copies M",
        y_label="test error",
        series=series,
        x_names=names,
    )


def _time_chart(own: _Results) -> Chart:
    places, names = _axis(own)
    seconds = [result["fit_seconds"] for result in own.results]
    return Chart(
        slug=f"explicit-{own.domain}-seconds",
        title=f"{own.domain.capitalize()}: seconds of training",
        caption="Processor seconds of one fit with the chosen C.",
        x_label="copies M",
        y_label="seconds",
        series=[
            Series("SVM on M copies", places[:-1], seconds, "copies"),
            Series(
                "Dropout-SVM (M = ∞)",
                [places[0], places[-1]],
                [own.infinity["fit_seconds"]] * 2,
                "Dropout-SVM",
            ),
        ],
        x_names=names,
    )


def _comparison(own: _Results) -> Comparison:
    papers = [published.EXPLICIT_MCF[n] for n in (0, *own.copies, math.inf)] if own.domain == "books" else None
    ours = [own.plain_error, *own.errors, own.error]
    return Comparison(
        caption=f"{own.domain.capitalize()}: test error by the number of copies"
        + (", beside MCF's Figure 3 (quadratic loss, 20,000 features)" if papers else ""),
        columns=["none", *map(str, own.copies), "∞"],
        rows={"SVM": (ours, papers if papers else [None] * len(ours))},
    )


def _claims(own: _Results) -> list[Claim]:
    first, last, most = own.errors[0], own.errors[-1], own.copies[-1]
    clearly = 2.0 * own.standard_error
    steps = {n: after - before for n, before, after in zip(own.copies[1:], own.errors, own.errors[1:], strict=False)}
    rises = ", ".join(f"M = {n} by {four_digits(step)}" for n, step in steps.items() if step > 0.0)
    least = min((own.plain_error, *own.errors))
    return [
        Claim(
            f"The error falls with the number of copies: by two standard errors in all, and no step up is as large "
            f"({own.domain}).",
            first - last > clearly and max(steps.values()) < clearly,
            f"{four_digits(first)} with {own.copies[0]}, {four_digits(last)} with {most}; "
            + (f"up at {rises}" if rises else "no step up")
            + f"; two standard errors are {four_digits(clearly)}",
        ),
        Claim(
            f"Dropout-SVM is as good as {most} copies, within {three_digits(_CLOSE)} ({own.domain}).",
            own.error <= last + _CLOSE,
            f"{four_digits(own.error)} against {four_digits(last)}",
        ),
        Claim(
            f"Dropout-SVM is the best of all ({own.domain}).",
            own.error <= least,
            f"{four_digits(own.error)} against {four_digits(least)}, the least of any number of copies, with a "
            f"standard error of {four_digits(own.standard_error)}",
        ),
        Claim(
            f"Dropout-SVM takes at most {_share(_SHARE_OF_TIME)} of the time of {most} copies ({own.domain}).",
            own.ratio <= _SHARE_OF_TIME,
            f"{own.infinity['fit_seconds']:.3f} s against {own.results[-1]['fit_seconds']:.3f} s, {_share(own.ratio)}",
        ),
    ]


def _share(ratio: float) -> str:
    """Return a ratio of times as text: ``1/50`` (rounded up), ``0.3`` or ``1.5 times``."""
    if ratio <= 0.1:
        return f"1/{math.floor(1.0 / ratio)}"
    return f"{ratio:.2g}" if ratio < 1.0 else f"{ratio:.2g} times"


def _verdict(every: list[_Results]) -> list[str]:
    return [
        f"{own.domain.capitalize()}: {own.copies[0]} corrupted {'copy gives' if own.copies[0] == 1 else 'copies give'} "
        f"{three_digits(own.errors[0])}, {own.copies[-1]} copies {three_digits(own.errors[-1])} in "
        f"{own.results[-1]['fit_seconds']:.1f} s, no noise {three_digits(own.plain_error)}; Dropout-SVM, which draws "
        f"nothing, {three_digits(own.error)} in {1000 * own.infinity['fit_seconds']:.0f} ms, {_share(own.ratio)} of "
        f"the time of {own.copies[-1]} copies. The standard error is {three_digits(own.standard_error)}."
        for own in every
    ] + [
        "The limit of infinitely many copies is the expected hinge loss. Dropout-SVM minimises a bound on it, which is "
        "tight over all noises with the same mean and variance, so the two need not end at the same error."
    ]


EXPLICIT = Experiment("explicit", "Explicit corruption (Figure 3)", tasks, summarise)
