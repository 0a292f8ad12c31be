"""``dropmargin info MODEL``: describe a model file."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import click

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, label_texts, noise_text
from dropmargin.cli.program import Command

_MAX_CLASSES = 20
# Facts of the summary that are shown above it.
_SHOWN = ("features", "classes", "noise", "C", "converged", "objective")
_TOP = shared.option("--top", type=shared.count, default=10, metavar="N", help="Features to list for each class.")


@click.command(cls=Command, params=[shared.file_argument("model"), _TOP], short_help="Describe a model file.")
def info(options: SimpleNamespace, console: Console) -> None:
    """Describe the model file MODEL: parameters, training data, largest coefficients."""
    from dropmargin.cli.reading import SavedModel

    model, facts = SavedModel.described(options.model)
    facts.pop("feature_names")
    facts["preprocessing"] = None if facts["preprocessing"] is None else facts["preprocessing"]["kind"]
    top = _top_features(model, options.top)
    text = _text(model, facts) + _top_text(top)
    console.result({"path": options.model} | facts | {"top_features": top}, text)


def _top_features(model: Any, n: int) -> list[dict[str, Any]]:
    """Return the strongest features of each output, in both directions; see `feature_strengths`."""
    from dropmargin.estimators.fitting import coefficients
    from dropmargin.explanation.features import feature_strengths, strongest

    names, (strengths, is_scaled), top = model.feature_labels, feature_strengths(model.estimator), []
    coefs = coefficients(model.estimator)[0]
    for (positive, negative), coef, own in zip(_directions(model.estimator), coefs, strengths, strict=True):
        entry: dict[str, Any] = {"for": positive, "against": negative}
        for key, sign in (("features_for", 1.0), ("features_against", -1.0)):
            entry[key] = [
                {
                    "feature": names[j],
                    "coefficient": float(coef[j]),
                    "standardised": float(own[j]) if is_scaled else None,
                }
                for j in strongest(sign * own, n)
            ]
        top.append(entry)
    return top


def _directions(classifier: Any) -> list[tuple[str, str]]:
    """Return for each output what a positive and what a negative score stand for."""
    from dropmargin.io.model.exports import is_one_vs_one

    if not hasattr(classifier, "classes_"):
        return [("increase the prediction", "decrease the prediction")]
    labels = label_texts(classifier.classes_)
    if len(labels) == 2:
        return [(f"for {labels[1]}", f"for {labels[0]}")]
    if is_one_vs_one(classifier):
        return [(f"for {b}, not {a}", f"for {a}, not {b}") for a, b in itertools.combinations(labels, 2)]
    return [(f"for {label}", f"against {label}") for label in labels]


def _top_text(top: list[dict[str, Any]]) -> str:
    """Return the largest coefficients as text: a line per direction."""
    listed = [one for entry in top for one in (*entry["features_for"], *entry["features_against"])]
    is_scaled = any(one["standardised"] is not None for one in listed)
    compared = "standardised" if is_scaled else "coefficient"
    scale = "times the standard deviation of their features" if is_scaled else "of features as they are"
    lines = [f"\n\nlargest coefficients, {scale}:"]
    for entry in top[:_MAX_CLASSES]:
        for key in ("for", "against"):
            texts = [f"{one['feature']} {one[compared]:+.4g}" for one in entry[f"features_{key}"]]
            lines.append(f"  {entry[key]}: {', '.join(texts)}")
    return "\n".join(lines)


def _text(model: Any, facts: dict[str, Any]) -> str:
    classifier = model.estimator
    labels = label_texts(classifier.classes_) if hasattr(classifier, "classes_") else []
    shown = ", ".join(labels[:_MAX_CLASSES]) + (" ..." if len(labels) > _MAX_CLASSES else "")
    n_stored = f"{facts['n_nonzero']} of {classifier.coef_.size} coefficients are not zero"
    lines = {
        "model": f"{facts['model']}, by dropmargin {facts['written_by']['dropmargin']}",
        "file": f"{model.path}, {facts['bytes']:,} bytes",
        "classes": f"{len(labels)}: {shown}" if labels else "none (regression)",
        "features": f"{facts['n_features']}; {n_stored}",
        "preprocessing": facts["preprocessing"] or "none (numeric input)",
        "fit": f"{'' if classifier.converged_ else 'not '}converged, objective {classifier.objective_:.6g}",
        "noise": noise_text(classifier.noise),
    }
    if getattr(classifier.noise, "groups", None) is not None:
        lines["noise"] += ", in groups of features that are lost together"
    defaults = type(classifier)().get_params(deep=False)
    for name, value in classifier.get_params(deep=False).items():
        if name == "C" or (name != "noise" and value != defaults[name]):
            lines[name] = str(value)
    summary = {name: value for name, value in model.summary.items() if value is not None and name not in _SHOWN}
    lines["training"] = "" if summary else "the file has no summary of it"
    lines |= {f"  {name}": str(value) for name, value in summary.items()}
    lines |= {"data": facts["data_hash"]} if facts["data_hash"] else {}
    width = max(map(len, lines))
    return "\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in lines.items())
