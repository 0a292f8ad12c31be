"""Random problems, each fitted by the package and by an independent optimiser: which fits stop short, and say nothing?

``python -m tests.fuzz.optima N SEED`` draws ``N`` classifications and regressions over losses, noises with all
references and with groups of features, penalties, shifts and scales of the features, missing values, sample weights,
sizes, warm starts, one-vs-rest, one-vs-one and multinomial; with ``--multinomial``, classifications
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
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning

from .draws import Case, draw
from .reference import BinaryProblem, minimise

# A fit may miss its tolerance by this factor.
ALLOWED = 10.0


class Outcome(NamedTuple):
    """What came of a case: the largest relative gap over the outputs, and how long the fit took."""

    index: int
    verdict: str  # "converged", "warned", "silent" or "error"
    gap: float
    seconds: float
    described: str
    message: str


def run(seed: int, index: int, seconds: int = 60, tol: float | None = None, multinomial: bool = False) -> Outcome:
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
            return Outcome(index, "error", np.nan, 0.0, case.described, f"{type(error).__name__}: {error}")
        warned = [str(entry.message) for entry in caught if issubclass(entry.category, ConvergenceWarning)]
        others = [str(entry.message) for entry in caught if not issubclass(entry.category, ConvergenceWarning)]
    problems = case.problems(getattr(model, "classes_", None))
    coefs = np.column_stack([np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)]).reshape(len(problems), -1)
    gaps = [relative_gap(problem, coef) for problem, coef in zip(problems, coefs, strict=True)]
    gap, lowest = max(gaps), min(gaps)
    if others:
        return Outcome(index, "error", gap, taken, case.described, f"warning: {others[0]}")
    if lowest < -ALLOWED * case.tol:
        return Outcome(index, "error", lowest, taken, case.described, "the reference has failed")
    verdict = "warned" if warned else "silent" if gap > ALLOWED * case.tol else "converged"
    return Outcome(index, verdict, gap, taken, case.described, warned[0] if warned else "")


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


def _prepare_warm_start(case: Case, model: Any, X: Any) -> None:
    """Fit a neighbour of the problem, to start from."""
    if case.warm is None:
        return
    changed: dict[str, Any] = {"tol": 1e-2} if case.warm == "same" else {"C": 0.1 * case.C}
    if case.warm == "noise" and case.noise[0] == "dropout":
        changed = {"noise": case.make_noise(0.5 * np.asarray(case.noise[1]) + 0.2)}
    own = model.get_params(deep=False)
    model.set_params(**changed).fit(X, case.y, sample_weight=case.sample_weight)
    model.set_params(**{name: own[name] for name in changed})


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
    print("Slowest fits:")
    for outcome in sorted(outcomes, key=lambda entry: -entry.seconds)[:5]:
        print(f"  {outcome.seconds:6.2f} s  {outcome.index}: {outcome.described}")


if __name__ == "__main__":
    sys.exit(main())
