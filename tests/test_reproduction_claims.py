"""Choices, claims and texts of the experiments, on made-up measurements."""

from __future__ import annotations

from made_up_experiment import made_up_log
from reproduction import amazon, published


def claims_of(summary, *words):
    """Return the claims whose texts contain all these words."""
    found = [claim for claim in summary.claims if all(word in claim.text for word in words)]
    assert found, words
    return found


def the_claim(summary, *words):
    (found,) = claims_of(summary, *words)
    return found


def verdict_text(summary):
    return " ".join(summary.verdict)


# Amazon --------------------------------------------------------------------------------------------------------------

_FALLING = {0.0: 0.18, 0.5: 0.15, 0.9: 0.16, "Poisson": 0.17}


def amazon_summary(curves=None, cv_errors=None, form="amazon5k", domain="books", n_test=4_000):
    """Return the summary of curves by model; by default from .18 to .15, and .01 higher for MCF."""
    lines = []
    for model in published.LOSSES:
        above = 0.0 if model.startswith("Dropout") else 0.01
        errors = {noise: error + above for noise, error in _FALLING.items()} | (curves or {}).get(model, {})
        for noise, error in errors.items():
            cv_error = (cv_errors or {}).get(model, errors)[noise]
            key = {"form": form, "domain": domain, "model": model, "noise": noise}
            sizes = {"n_train": 2_000, "n_test": n_test, "n_features": 5_000}
            lines.append((key, {"error": error, "cv_error": cv_error, "C": 0.1} | sizes))
    return amazon.summarise(made_up_log(lines))


def test_amazon_claims_hold_for_curves_like_the_papers():
    summary = amazon_summary()
    assert all(claim.holds for claim in summary.claims)
    assert "Dropout-SVM has .180 without noise, .150 at its best rate, q = 0.5" in verdict_text(summary)
    assert "at 2 of 2 points" in verdict_text(summary)


def test_amazon_claims_fail_one_by_one():
    quadratic = the_claim(amazon_summary({"Dropout-SVM": {0.9: 0.17}}), "Dropout-SVM has less error than MCF-Quad")
    assert not quadratic.holds  # equal is not less
    assert quadratic.evidence.startswith("lower at 1 of 2 rates; not at q = 0.9 (.1700 against .1700); 1 of these")
    clear = the_claim(amazon_summary({"Dropout-SVM": {0.9: 0.18}}), "Dropout-SVM has less error than MCF-Quad")
    assert clear.evidence.endswith("0 of these by less than a standard error")
    worse = amazon_summary({"Dropout-SVM": {0.5: 0.166}})
    assert not the_claim(worse, "Aim: Dropout-SVM", "at most .158").holds
    assert not the_claim(worse, "Aim: Dropout-SVM", "gains").holds
    assert the_claim(worse, "Dropout-SVM", "as good as MCF-Logistic").holds  # .160 and .160
    much_worse = amazon_summary({"Dropout-SVM": {0.5: 0.168, 0.9: 0.168}})
    assert not the_claim(much_worse, "Dropout-SVM", "as good as MCF-Logistic").holds  # .168 and .160, s.e. .0059
    assert all(claim.holds for claim in claims_of(much_worse, "Dropout-Logistic"))


# CIFAR-10 ------------------------------------------------------------------------------------------------------------


# Nightmare -----------------------------------------------------------------------------------------------------------
