"""Figure 2: the error on Amazon reviews by dropout rate and under Poisson noise, with ``C`` from cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from dropmargin.errors import ParameterWarning
from dropmargin.model_selection import NoisyLinearClassifierCV
from dropmargin.noise import Noise, PoissonNoise
from reproduction import published
from reproduction.datasets import Split, amazon_forms, load_amazon
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
    in_points,
    standard_error,
    three_digits,
)

DOMAINS = ("books", "kitchen")
_CAPTIONS = {
    "amazon5k": "The papers' documents with 5,000 features; the published curves have 20,000.",
    "amazon20k": "The papers' training documents; other test documents of the same domain than theirs.",
    "processed_acl": "The papers' documents.",
}
_OURS = ("Dropout-SVM", "Dropout-Logistic")
_QUICK_RATES = (0.0, 0.3, 0.5, 0.7, 0.9)
_CS, _QUICK_CS = np.logspace(-5, 1, 13), np.logspace(-4, 0, 5)
_N_FOLDS, _QUICK_N_FOLDS = 5, 3
_POISSON = "Poisson"
# Targets of full runs: the error at the best rate, and its difference to the error without noise.
_AIMS = {
    ("Dropout-SVM", "books"): {"amazon5k": 0.158, "amazon20k": 0.152, "gain": 0.025},
    ("Dropout-SVM", "kitchen"): {"amazon5k": 0.110, "amazon20k": 0.112, "gain": 0.012},
    ("Dropout-Logistic", "books"): {"amazon5k": 0.153, "amazon20k": 0.152, "gain": 0.025},
    ("Dropout-Logistic", "kitchen"): {"amazon5k": 0.112, "amazon20k": 0.112, "gain": 0.012},
}


def forms_of(domain: str, config: RunConfig) -> tuple[str, ...]:
    """Return the forms of the reviews in the data folder, those with the papers' documents first (or the official)."""
    return amazon_forms(domain, config.data_home) or ("processed_acl",)


def loader(domain: str, form: str, config: RunConfig) -> Callable[[], Split]:
    """Return a function that reads the reviews on its first call and caches them."""
    return cache(partial(load_amazon, domain, form=form, data_home=config.data_home, download=config.download))


def tasks(config: RunConfig) -> list[Task]:
    """Return one task per form of the data, domain, model and noise."""
    rates = _QUICK_RATES if config.quick else published.RATES
    found = []
    for domain in DOMAINS:
        forms = forms_of(domain, config)
        for form in forms[:1] if config.quick else forms:
            load = loader(domain, form, config)
            for model in published.LOSSES:
                for noise in (*rates, _POISSON):
                    key = {"form": form, "domain": domain, "model": model, "noise": noise}
                    found.append(Task(key, partial(_measure, config, load, model, noise)))
    return found


def _measure(config: RunConfig, load: Callable[[], Split], model: str, noise: float | str) -> dict[str, Any]:
    """Return the test error of a model, with the ``C`` of the least cross-validated error."""
    data = load()
    noise_model: Noise = PoissonNoise() if isinstance(noise, str) else blankout(noise)
    folds = StratifiedKFold(_QUICK_N_FOLDS if config.quick else _N_FOLDS, shuffle=True, random_state=config.seed)
    search = NoisyLinearClassifierCV(
        published.LOSSES[model],
        noises=[noise_model],
        Cs=_QUICK_CS if config.quick else _CS,
        cv=folds,
        prune=False,
        n_jobs=config.n_jobs,
        verbose=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ParameterWarning)  # the report counts choices at an end of the grid
        search.fit(data.X_train, data.y_train)
    return {
        "error": 1.0 - search.score(data.X_test, data.y_test),
        "cv_error": 1.0 - search.best_score_,
        "C": search.C_,
        "papers_c": published.papers_c(model, search.C_),
        "n_train": data.X_train.shape[0],
        "n_test": data.X_test.shape[0],
        "n_features": data.X_train.shape[1],
    }


class _Curves:
    """The errors of one form and domain: by model and noise."""

    def __init__(self, log: ResultsLog, form: str, domain: str) -> None:
        self.form, self.domain = form, domain
        self.measured = {(m.key["model"], m.key["noise"]): m.result for m in log.select(form=form, domain=domain)}
        self.rates = sorted({noise for _, noise in self.measured if noise != _POISSON})
        self.sizes = next(iter(self.measured.values()))

    @property
    def name(self) -> str:
        return f"{self.domain}, {self.form}"

    @property
    def standard_error(self) -> float:
        """The standard error of one point, at the least error of Dropout-SVM."""
        return standard_error(self.best("Dropout-SVM")[0], self.sizes["n_test"])

    def error(self, model: str, noise: float | str) -> float:
        return float(self.measured[model, noise]["error"])

    def curve(self, model: str) -> list[float]:
        return [self.error(model, rate) for rate in self.rates]

    def best(self, model: str) -> tuple[float, float]:
        """Return the least test error over the rates, and its rate, which is not known without the test data."""
        return min((self.error(model, rate), rate) for rate in self.rates)

    def by_cross_validation(self, model: str) -> tuple[float, float]:
        """Return the error at the rate of the least cross-validated error, and that rate."""
        rate = min((self.measured[model, rate]["cv_error"], rate) for rate in self.rates)[1]
        return self.error(model, rate), rate


def summarise(log: ResultsLog) -> Summary:
    """Return the curves beside the published ones, and which of the paper's claims hold."""
    pairs = dict.fromkeys((m.key["form"], m.key["domain"]) for m in log)
    curves = [_Curves(log, form, domain) for form, domain in pairs]
    claims = [claim for own in curves for claim in _claims(own)]
    return Summary(
        title="Amazon reviews (Figure 2)",
        verdict=_verdict(curves, claims),
        charts=[_chart(own) for own in curves],
        comparisons=[_comparison(own) for own in curves],
        claims=claims,
        settings=_settings(curves, log.header["quick"]),
        seconds=log.seconds,
    )


def _settings(curves: Sequence[_Curves], quick: bool) -> dict[str, str]:
    Cs, n_folds = (_QUICK_CS, _QUICK_N_FOLDS) if quick else (_CS, _N_FOLDS)
    chosen = [result["C"] for own in curves for result in own.measured.values()]
    edges = sum(bool(np.isclose(C, (Cs[0], Cs[-1])).any()) for C in chosen)
    return {
        "Data": "; ".join(
            f"{own.name}: {own.sizes['n_train']:,} training and {own.sizes['n_test']:,} test documents, "
            f"{own.sizes['n_features']:,} features, counts"
            for own in curves
        ),
        "Choice of C": f"{n_folds}-fold cross-validation on the training documents, for each model and each noise, "
        f"among {len(Cs)} values from {Cs[0]:g} to {Cs[-1]:g}; {edges} of {len(chosen)} choices are the first or last",
        "Best rate": "that of the least test error, the minimum of the curve; a cross-validated rate is that of the "
        "least cross-validated error",
        "Unit of C": published.UNITS_OF_C,
    }


def _chart(own: _Curves) -> Chart:
    papers = published.AMAZON[own.domain]
    series = [Series(model, own.rates, own.curve(model), model) for model in published.LOSSES]
    series += [
        Series(f"{model}, published", published.RATES, papers[model][: len(published.RATES)], model, published=True)
        for model in published.LOSSES
        if model in papers
    ]
    return Chart(
        slug=f"amazon-{own.form}-{own.domain}",
        title=f"{own.domain.capitalize()}, {own.form}",
        caption=f"Test error by the rate of dropout. The standard error of one point is {own.standard_error:.3f}. "
        + _CAPTIONS[own.form],
        x_label="dropout rate q",
        y_label="test error",
        series=series,
    )


def _comparison(own: _Curves) -> Comparison:
    papers = published.AMAZON[own.domain]
    places = [*_places(own), len(published.RATES)]
    return Comparison(
        caption=f"{own.domain.capitalize()}, {own.form}: test error",
        columns=[f"q = {rate:g}" for rate in own.rates] + [_POISSON],
        rows={
            model: (
                [*own.curve(model), own.error(model, _POISSON)],
                [papers[model][place] if model in papers else None for place in places],
            )
            for model in published.LOSSES
        },
    )


def _places(own: _Curves) -> list[int]:
    """Return the indices of the rates in the published ones."""
    return [published.RATES.index(rate) for rate in own.rates]


# Claims of the paper -------------------------------------------------------------------------------------------------


def _claims(own: _Curves) -> list[Claim]:
    claims = []
    for model in _OURS:
        claims += [_beats_quadratic(own, model), _matches_logistic(own, model)]
        if own.domain == "kitchen":
            claims.append(_beats_logistic(own, model))
        claims += [_beats_no_noise(own, model), *_aims(own, model)]
    return claims


def _beats_quadratic(own: _Curves, model: str) -> Claim:
    rates = [rate for rate in own.rates if rate > 0.0]
    others = [rate for rate in rates if own.error(model, rate) >= own.error("MCF-Quadratic", rate)]
    evidence = f"lower at {len(rates) - len(others)} of {len(rates)} rates"
    if others:
        evidence += "; not at " + ", ".join(
            f"q = {rate:g} ({four_digits(own.error(model, rate))} against "
            f"{four_digits(own.error('MCF-Quadratic', rate))})"
            for rate in others
        )
        above = [own.error(model, rate) - own.error("MCF-Quadratic", rate) for rate in others]
        evidence += f"; {sum(gap < own.standard_error for gap in above)} of these by less than a standard error"
    text = f"{model} has less error than MCF-Quadratic at every rate above 0, up to .9 ({own.name})."
    return Claim(text, not others, evidence)


def _matches_logistic(own: _Curves, model: str) -> Claim:
    ours, theirs = own.best(model)[0], own.best("MCF-Logistic")[0]
    text = f"{model} at its best rate is as good as MCF-Logistic at its own, within a standard error ({own.name})."
    evidence = (
        f"{four_digits(ours)} against {four_digits(theirs)}, with a standard error of {four_digits(own.standard_error)}"
    )
    return Claim(text, ours <= theirs + own.standard_error, evidence)


def _beats_logistic(own: _Curves, model: str) -> Claim:
    ours, theirs = own.best(model)[0], own.best("MCF-Logistic")[0]
    text = f"{model} at its best rate is a bit better than MCF-Logistic at its own ({own.name})."
    return Claim(text, ours < theirs, f"{four_digits(ours)} against {four_digits(theirs)}")


def _beats_no_noise(own: _Curves, model: str) -> Claim:
    """Compare at the cross-validated rate, because the least of ten test errors is biased downwards."""
    (error, rate), plain = own.by_cross_validation(model), own.error(model, 0.0)
    text = f"{model} at the cross-validated rate clearly beats q = 0, by two standard errors or more ({own.name})."
    evidence = (
        f"{four_digits(error)} at q = {rate:g} against {four_digits(plain)}, "
        f"with a standard error of {four_digits(own.standard_error)}"
    )
    return Claim(text, plain - error >= 2.0 * own.standard_error, evidence)


def _aims(own: _Curves, model: str) -> Iterator[Claim]:
    """Yield whether a model reaches the targets of this project on a form of the data."""
    aim, (error, rate) = _AIMS[model, own.domain], own.best(model)
    chosen, chosen_rate = own.by_cross_validation(model)
    also = f"at the cross-validated q = {chosen_rate:g}"
    if own.form in aim:
        yield Claim(
            f"Aim: {model} at its best rate at most {three_digits(aim[own.form])} ({own.name}).",
            error <= aim[own.form],
            f"{four_digits(error)} at q = {rate:g}; {four_digits(chosen)} {also}",
        )
    if own.form == "amazon5k":
        plain = own.error(model, 0.0)
        yield Claim(
            f"Aim: {model} at its best rate gains at least {in_points(aim['gain'])} over its own q = 0 ({own.name}).",
            plain - error >= aim["gain"],
            f"{in_points(plain - error)}; {in_points(plain - chosen)} {also}",
        )


# Text ----------------------------------------------------------------------------------------------------------------


def _verdict(curves: Sequence[_Curves], claims: Sequence[Claim]) -> list[str]:
    texts = [
        f"{own.name.capitalize()}: {'; '.join(f'{model} has {_describe(own, model)}' for model in _OURS)}."
        for own in curves
    ]
    paper = [claim for claim in claims if not claim.text.startswith("Aim")]
    texts.append(
        f"{sum(claim.holds for claim in paper)} of {len(paper)} of the paper's statements hold; the table of claims "
        f"has them one by one. {_leads(curves)}"
    )
    return texts + _features(curves)


def _describe(own: _Curves, model: str) -> str:
    (error, rate), (chosen, chosen_rate) = own.best(model), own.by_cross_validation(model)
    at_best = f"{three_digits(error)} at its best rate, q = {rate:g}" if rate > 0.0 else "not less at any rate"
    return (
        f"{three_digits(own.error(model, 0.0))} without noise, {at_best}, and {three_digits(chosen)} at q = "
        f"{chosen_rate:g}, the rate of cross-validation"
    )


def _leads(curves: Sequence[_Curves]) -> str:
    """Return how the two models of the paper compare with the three of MCF, rate by rate."""
    rivals = [model for model in published.LOSSES if model not in _OURS]
    leads = [
        (min(own.error(model, rate) for model in rivals) - min(own.error(model, rate) for model in _OURS), own)
        for own in curves
        for rate in own.rates
        if rate > 0.0
    ]
    return (
        f"The better of Dropout-SVM and Dropout-Logistic has less error than the best of the three MCF losses at "
        f"{sum(lead > 0.0 for lead, _ in leads)} of {len(leads)} points (data and rates above 0); the two are less "
        f"than a standard error apart at {sum(abs(lead) < own.standard_error for lead, own in leads)} of them."
    )


def _features(curves: Sequence[_Curves]) -> list[str]:
    """Return how the form of the data affects the distance to the published curves."""
    texts = []
    for own in curves:
        if own.form == "amazon5k":
            above = {
                model: float(np.mean(own.curve(model)) - np.mean([curve[place] for place in _places(own)]))
                for model, curve in published.AMAZON[own.domain].items()
            }
            means = ", ".join(f"{model} {100.0 * mean:+.1f}" for model, mean in above.items())
            texts.append(
                f"{own.name.capitalize()}, has the papers' documents and {own.sizes['n_features']:,} features, the "
                f"published curves (MCF's) 20,000. Ours less the published ones, in points, on average over the rates: "
                f"{means}."
                + (" All three lie higher, as they may with fewer words." if min(above.values()) > 0.0 else "")
            )
    if any(own.form == "amazon20k" for own in curves):
        texts.append(
            "amazon20k has the number of features, but other test documents: its curves can be compared with the "
            "published ones in shape, and not in digits."
        )
    return texts


AMAZON = Experiment("amazon", "Amazon reviews (Figure 2)", tasks, summarise)
