"""Random problems, each fitted by the package and by an independent optimiser: which fits stop short, and say nothing?

``python -m tests.fuzz.optima N SEED`` draws ``N`` problems over losses, noises, penalties, shifts and scales of the
features, sample weights, sizes, warm starts, one-vs-rest and one-vs-one; with ``--multinomial``, the same problems
with three or more classes and one softmax over all of them. It prints each problem whose relative gap to
the optimum is more than ten times ``tol`` without a warning, and each error, with the seed that draws it again:
``python -m tests.fuzz.optima --show SEED INDEX``. The exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from dropmargin import DropoutNoise, GaussianNoise, LaplaceNoise, NoisyLinearClassifier, PoissonNoise

from .multinomial import MultinomialProblem
from .reference import MGF_LOSSES, MOMENT_LOSSES, BinaryProblem, minimise

# A fit may miss its tolerance by this factor.
ALLOWED = 10.0
_NOISES = {"dropout": DropoutNoise, "gaussian": GaussianNoise, "laplace": LaplaceNoise, "poisson": PoissonNoise}
#: Names and shares of the shapes that are drawn: rows and features, from and to.
_SHAPES = {
    "small": (0.62, (8, 100), (1, 20)),
    "square": (0.16, (60, 300), (20, 60)),
    "wide": (0.12, (20, 60), (60, 120)),
    "large": (0.06, (300, 800), (30, 80)),
    "diagonal": (0.02, (210, 260), (270, 320)),
    "tall": (0.02, (10_000, 12_000), (2, 6)),
}


@dataclass(frozen=True)
class Case:
    """A drawn problem: the data, and what the estimator is to do with them."""

    X: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None
    loss: str
    noise: tuple[Any, ...]
    C: float
    l1_ratio: float
    tol: float
    fit_intercept: bool
    multi_class: str
    layout: str
    warm: str | None
    described: str

    def estimator(self) -> NoisyLinearClassifier:
        name, _, kind = self.loss.rpartition("gaussian-")
        approximation = "gaussian" if _ else "bound"
        name, *parameter = self.noise
        return NoisyLinearClassifier(
            kind,
            approximation=approximation,
            noise=None if name == "none" else _NOISES[name](*parameter[:1], **self.reference),
            C=self.C,
            l1_ratio=self.l1_ratio,
            tol=self.tol,
            fit_intercept=self.fit_intercept,
            multi_class=self.multi_class,
            warm_start=self.warm is not None,
            max_iter=3000,
        )

    @property
    def reference(self) -> dict[str, str]:
        return {"reference": self.noise[2]} if self.noise[0] == "dropout" else {}

    def rows(self) -> Any:
        return sparse.csr_array(self.X) if self.layout == "sparse" else self.X

    def problems(self, classes: np.ndarray) -> list[BinaryProblem]:
        """Return the binary problem of each row of ``coef_``, or the multinomial problem of all."""
        weight = self.C * (np.ones(len(self.y)) if self.sample_weight is None else self.sample_weight)
        is_multinomial = self.multi_class == "multinomial" and len(classes) > 2
        if is_multinomial:
            sides = [(self.y > 0, self.y == 0)]
        elif self.multi_class == "ovo" and len(classes) > 2:
            sides = [(self.y == a, self.y == b) for a, b in combinations(classes, 2)]
        else:
            sides = [(self.y != k, self.y == k) for k in (classes if len(classes) > 2 else classes[1:])]
        noise = self.noise
        if self.reference == {"reference": "mean"}:  # the weighted mean of all rows
            noise = (*noise[:2], weight @ self.X / weight.sum())
        out = []
        for negative, positive in sides:
            used = (negative | positive) & (weight > 0.0)
            y = np.where(positive, 1.0, -1.0)[used]
            kind = BinaryProblem
            if is_multinomial:
                y, kind = np.searchsorted(classes, self.y[used]), MultinomialProblem
            penalty = self.l1_ratio, 1.0 - self.l1_ratio
            out.append(kind(self.loss, noise, self.X[used], y, weight[used], *penalty, self.fit_intercept))
        return out


class Outcome(NamedTuple):
    """What came of a case: the largest relative gap over the outputs, and how long the fit took."""

    index: int
    verdict: str  # "converged", "warned", "silent" or "error"
    gap: float
    seconds: float
    peer_seconds: float
    described: str
    message: str


def draw(seed: int, index: int, multinomial: bool = False) -> Case:
    """Return problem ``index`` of the sequence of this seed; ``multinomial`` with one softmax over all classes."""
    rng = np.random.default_rng([seed, index])
    names = list(_SHAPES)
    shape = names[int(rng.choice(len(names), p=[share for share, *_ in _SHAPES.values()]))]
    _, rows, features = _SHAPES[shape]
    n, d = (int(rng.integers(low, high + 1)) for low, high in (rows, features))
    n_classes = 2 if shape == "tall" else int(rng.choice([2, 2, 2, 3, 5]))
    loss = str(rng.choice(["hinge", "hinge", "logistic", "quadratic", *MOMENT_LOSSES[3:], *MGF_LOSSES]))
    if multinomial:
        n_classes, loss = max(3, n_classes), "mcf-logistic" if loss == "mcf-logistic" else "logistic"
    noise = _draw_noise(rng, d)
    if noise[0] == "dropout":
        noise = (*noise, "mean" if index % 2 else "zero")
    layout = str(rng.choice(["dense", "sparse"]))
    X, kind = _draw_features(rng, n, d, noise[0] == "poisson", loss in MGF_LOSSES, layout == "sparse")
    y = _draw_labels(rng, X, n_classes)
    weight = _draw_weights(rng, y)
    l1_ratio = float(rng.choice([0.0, 0.0, 1.0, rng.uniform(0.05, 0.95)]))
    C = float(10.0 ** rng.uniform(-3.0, 2.0 if loss in MGF_LOSSES else 4.0))
    tol = float(rng.choice([1e-2, 1e-3, 1e-4, 1e-4, 1e-6, 1e-8]))
    if "1e-5 to 1e5" in kind:  # features over ten decades: rounding leaves about six digits of the objective
        tol = max(tol, 1e-6)
    case = Case(
        X, y, weight, loss, noise, C, l1_ratio, tol,
        fit_intercept=bool(rng.uniform() < 0.85),
        multi_class="multinomial" if multinomial else str(rng.choice(["ovr", "ovo"])),
        layout=layout,
        warm=str(rng.choice(["C", "noise", "same"])) if rng.uniform() < 0.2 else None,
        described="",
    )  # fmt: skip
    weights = "none" if weight is None else f"{weight[weight > 0].min():.2g} to {weight.max():.2g}"
    described = (
        f"{n} x {d} {kind}, {case.layout}, {n_classes} classes ({case.multi_class}), loss={loss}, "
        f"noise={_short(noise)}, C={C:.3g}, l1_ratio={l1_ratio:.2g}, tol={tol:g}, "
        f"fit_intercept={case.fit_intercept}, weights {weights}, warm={case.warm}"
    )
    return Case(**{**vars(case), "described": described})


def _draw_noise(rng: np.random.Generator, d: int) -> tuple[Any, ...]:
    name = str(rng.choice(["none", "dropout", "dropout", "gaussian", "laplace", "poisson"]))
    if name in ("none", "poisson"):
        return (name,)
    if name == "dropout":
        rate = float(rng.choice([1e-6, 1e-3, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99]))
        return name, (rng.uniform(0.0, 0.95, d) if rng.uniform() < 0.15 else rate)
    scale = float(10.0 ** rng.uniform(-6.0, 0.3))
    return name, (scale * rng.uniform(0.0, 1.0, d) if rng.uniform() < 0.15 else scale)


def _draw_features(
    rng: np.random.Generator, n: int, d: int, is_count: bool, through_mgf: bool, is_sparse: bool
) -> tuple[np.ndarray, str]:
    kind = "counts" if is_count else str(rng.choice(["normal", "normal", "correlated", "binary", "counts"]))
    if kind == "normal":
        X = rng.normal(size=(n, d))
    elif kind == "correlated":
        X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) + 0.1 * rng.normal(size=(n, d))
    elif kind == "binary":
        X = (rng.uniform(size=(n, d)) < rng.uniform(0.05, 0.9, d)).astype(float)
    else:
        X = rng.poisson(rng.uniform(0.2, 3.0, d), (n, d)).astype(float)
    if not is_count and rng.uniform() < 0.3:
        width = 5.0 if rng.uniform() < 0.2 else 1.5
        X = X * 10.0 ** rng.uniform(-width, width, d)
        kind += f" scaled by 1e-{width:g} to 1e{width:g}"
    if rng.uniform() < 0.35:
        # Far from zero, a loss through the log-MGF of dropout or Poisson noise has no small weights to offer.
        largest = 1.0 if through_mgf else 3.0
        # A sparse X is not centred: numbers as far from zero as 1e8 are for dense rows.
        far = rng.uniform() < 0.06 and not (through_mgf or is_count or is_sparse)
        shift = 1e8 if far else 10.0 ** rng.uniform(0.0, largest)
        X = X + (shift if rng.uniform() < 0.6 else shift * rng.uniform(0.0 if is_count else -1.0, 1.0, d))
        kind += f" shifted by {shift:.2g}"
    return X, kind


def _draw_labels(rng: np.random.Generator, X: np.ndarray, n_classes: int) -> np.ndarray:
    """Return labels that depend on the features, separable or not, balanced or not; every class is there."""
    n, d = X.shape
    scaled = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-300)
    scores = scaled @ rng.normal(size=(d, n_classes))
    scores /= max(float(scores.std()), 1e-300)
    scores += rng.choice([0.0, 0.3, 1.0, 3.0]) * rng.normal(size=scores.shape)
    scores += rng.choice([0.0, 0.0, 1.5]) * rng.normal(size=n_classes)
    y = scores.argmax(axis=1)
    y[rng.permutation(n)[:n_classes]] = np.arange(n_classes)
    return y


def _draw_weights(rng: np.random.Generator, y: np.ndarray) -> np.ndarray | None:
    kind = rng.choice(["none", "decades", "zeros", "classes"], p=[0.55, 0.2, 0.1, 0.15])
    if kind == "none":
        return None
    weight = 10.0 ** rng.uniform(-1.0, 1.0, len(y))
    if kind == "zeros":
        weight[(rng.uniform(size=len(y)) < 0.3)] = 0.0
        weight[[int(np.argmax(y == k)) for k in np.unique(y)]] = 1.0  # no class without weight
    elif kind == "classes":
        weight = (10.0 ** rng.uniform(-2.0, 0.0, y.max() + 1))[y]
    return weight


def _short(noise: tuple[Any, ...]) -> str:
    name, *parameter = noise
    return name if not parameter else f"{name}({parameter[0]:.3g})" if np.ndim(parameter[0]) == 0 else f"{name}(array)"


def run(
    seed: int, index: int, seconds: int = 60, peer: bool = True, tol: float | None = None, multinomial: bool = False
) -> Outcome:
    """Fit a problem, for so many seconds at most, and compare it with the reference; ``tol`` replaces the drawn one."""
    case = draw(seed, index, multinomial)
    case = case if tol is None else replace(case, tol=tol)
    X, model = case.rows(), case.estimator()
    warned: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _prepare_warm_start(case, model, X)
            caught.clear()
            begun = time.perf_counter()
            with _time_limit(seconds):
                model.fit(X, case.y, sample_weight=case.sample_weight)
            taken = time.perf_counter() - begun
        except Exception as error:
            return Outcome(index, "error", np.nan, 0.0, 0.0, case.described, f"{type(error).__name__}: {error}")
        warned = [str(entry.message) for entry in caught if issubclass(entry.category, ConvergenceWarning)]
        others = [str(entry.message) for entry in caught if not issubclass(entry.category, ConvergenceWarning)]
    problems = case.problems(model.classes_)
    coefs = np.column_stack([model.coef_, model.intercept_]).reshape(len(problems), -1)
    gaps = [relative_gap(problem, coef) for problem, coef in zip(problems, coefs, strict=True)]
    gap, lowest = max(gaps), min(gaps)
    peer_seconds = _peer_seconds(case, X) if peer else np.nan
    if others:
        return Outcome(index, "error", gap, taken, peer_seconds, case.described, f"warning: {others[0]}")
    if lowest < -ALLOWED * case.tol:
        return Outcome(index, "error", lowest, taken, peer_seconds, case.described, "the reference has failed")
    verdict = "warned" if warned else "silent" if gap > ALLOWED * case.tol else "converged"
    return Outcome(index, verdict, gap, taken, peer_seconds, case.described, warned[0] if warned else "")


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"the fit takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def relative_gap(problem: BinaryProblem, coef: np.ndarray) -> float:
    """Return how far ``J`` is above the least value that the reference finds, from zero and from ``coef``.

    Rounding of the intercept is allowed for: features far from zero leave it few digits.
    """
    value = problem.value(coef)
    best = min(problem.value(minimise(problem)), problem.value(minimise(problem, start=coef)))
    missing = value - best
    if missing > 0.0:
        missing = max(0.0, missing - problem.rounding(coef))
    return missing / max(abs(best), np.finfo(float).tiny)


def _prepare_warm_start(case: Case, model: NoisyLinearClassifier, X: Any) -> None:
    """Fit a neighbour of the problem, to start from."""
    if case.warm is None:
        return
    changed: dict[str, Any] = {"tol": 1e-2} if case.warm == "same" else {"C": 0.1 * case.C}
    if case.warm == "noise" and case.noise[0] == "dropout":
        changed = {"noise": DropoutNoise(0.5 * np.asarray(case.noise[1]) + 0.2, **case.reference)}
    own = model.get_params(deep=False)
    model.set_params(**changed).fit(X, case.y, sample_weight=case.sample_weight)
    model.set_params(**{name: own[name] for name in changed})


def _peer_seconds(case: Case, X: Any) -> float:
    peer = LinearSVC(loss="hinge", C=case.C, tol=case.tol, max_iter=3000, fit_intercept=case.fit_intercept)
    if sparse.issparse(X):
        X = sparse.csr_matrix(X)
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = time.perf_counter()
        peer.fit(X, case.y, sample_weight=case.sample_weight)
        return time.perf_counter() - begun


def main(argv: list[str] | None = None) -> int:
    """Run the harness and print its summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.optima", description=__doc__)
    parser.add_argument("number", type=int, nargs="?", default=200, metavar="N", help="how many problems (200)")
    parser.add_argument("seed", type=int, nargs="?", default=0, metavar="SEED", help="which sequence of them (0)")
    parser.add_argument("--first", type=int, default=0, metavar="INDEX", help="the first problem of the sequence (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1; times are comparable for 1 only)")
    parser.add_argument("--seconds", type=int, default=60, help="a fit that takes longer counts as an error (60)")
    parser.add_argument("--tol", type=float, help="one tolerance for all problems, instead of those that are drawn")
    parser.add_argument("--show", type=int, nargs=2, metavar=("SEED", "INDEX"), help="run one problem and print it")
    parser.add_argument("--multinomial", action="store_true", help="one softmax over three or more classes")
    options = parser.parse_args(argv)
    settings = {"tol": options.tol, "multinomial": options.multinomial}
    if options.show:
        outcome = run(*options.show, **settings)
        print(*(f"{name}: {value}" for name, value in outcome._asdict().items()), sep="\n")
        return int(outcome.verdict in ("silent", "error"))
    indices = range(options.first, options.first + options.number)
    jobs = (delayed(run)(options.seed, index, options.seconds, **settings) for index in indices)
    outcomes = []
    for outcome in Parallel(options.jobs, return_as="generator")(jobs):
        outcomes.append(outcome)
        if outcome.verdict in ("silent", "error"):
            print(f"\r{describe(options.seed, outcome)}", flush=True)
        elif sys.stderr.isatty():
            print(f"\r{len(outcomes)} of {options.number}", end="", file=sys.stderr, flush=True)
    _print_summary(options.seed, outcomes)
    return int(any(outcome.verdict in ("silent", "error") for outcome in outcomes))


def describe(seed: int, outcome: Outcome) -> str:
    """Return one line about an outcome, with the numbers that draw its problem again."""
    return (
        f"{outcome.verdict} {seed} {outcome.index}: gap {outcome.gap:.1e}, {outcome.seconds:.2f} s. "
        f"{outcome.described}. {outcome.message}"
    )


def _print_summary(seed: int, outcomes: list[Outcome]) -> None:
    counts = Counter(outcome.verdict for outcome in outcomes)
    print(
        f"\n{len(outcomes)} problems of seed {seed}: {counts['silent']} silent stops, {counts['error']} errors, "
        f"{counts['warned']} warnings, {counts['converged']} converged."
    )
    good = [outcome.gap for outcome in outcomes if outcome.verdict == "converged"]
    if good:
        print(f"Largest relative gap of a converged fit: {max(good):.1e}.")
    print("Slowest fits, and LinearSVC (hinge) on the same data with the same C and tol:")
    for outcome in sorted(outcomes, key=lambda entry: -entry.seconds)[:5]:
        print(f"  {outcome.seconds:6.2f} s, {outcome.peer_seconds:6.2f} s  {outcome.index}: {outcome.described}")


if __name__ == "__main__":
    sys.exit(main())
