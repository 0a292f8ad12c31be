"""``dropmargin info MODEL``: describe a model file."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import click

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console
from dropmargin.cli.program import SUCCESS, Command

_MAX_CLASSES = 20
_TOP = shared.option("--top", type=shared.count, default=10, metavar="N", help="Features to list for each class.")


@click.command(cls=Command, params=[shared.file_argument("model"), _TOP], short_help="Describe a model file.")
def info(options: SimpleNamespace, console: Console) -> int:
    """Describe the model file MODEL: parameters, training data, largest coefficients."""
    from sklearn.pipeline import Pipeline

    from dropmargin.io.model import load_described

    model, facts = load_described(options.model)
    classifier = model[-1] if isinstance(model, Pipeline) else model
    names = facts.pop("feature_names")
    facts["preprocessing"] = None if facts["preprocessing"] is None else facts["preprocessing"]["kind"]
    top = _top_features(classifier, names, facts["summary"] or {}, options.top)
    console.result(
        {"path": options.model} | facts | {"top_features": top}, _text(options.model, classifier, facts, top)
    )
    return SUCCESS


def _top_features(classifier: Any, names: list[str] | None, summary: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """Return the features with the largest coefficients of each output, in both directions.

    Coefficients are compared after multiplication by the standard deviations of the features in the training data, if
    the model has these.
    """
    import numpy as np

    first = 0 if summary.get("zero_based") is True else 1  # index of the first feature in the data file
    deviations = getattr(classifier, "feature_deviations_", None)
    top = []
    for (positive, negative), coef in zip(_directions(classifier), np.atleast_2d(classifier.coef_), strict=True):
        compared = coef if deviations is None else coef * deviations
        entry: dict[str, Any] = {"for": positive, "against": negative}
        for key, sign in (("features_for", 1.0), ("features_against", -1.0)):
            order = np.argsort(-sign * compared, kind="stable")[:n]
            order = order[sign * compared[order] > 0.0]
            entry[key] = [
                {
                    "feature": str(j + first) if names is None else names[j],
                    "coefficient": float(coef[j]),
                    "standardised": None if deviations is None else float(compared[j]),
                }
                for j in order.tolist()
            ]
        top.append(entry)
    return top


def _directions(classifier: Any) -> list[tuple[str, str]]:
    """Return for each output what a positive and what a negative score stand for."""
    from dropmargin.cli.formatting import label_texts

    if not hasattr(classifier, "classes_"):
        return [("increase the prediction", "decrease the prediction")]
    labels = label_texts(classifier.classes_)
    is_ovr = len(classifier.coef_) == len(labels) and getattr(classifier, "multi_class", "ovr") != "ovo"
    if len(labels) > 2 and is_ovr:
        return [(f"for {label}", f"against {label}") for label in labels]
    if len(labels) == 2:
        return [(f"for {labels[1]}", f"for {labels[0]}")]
    return [
        (f"for {second}, not {first}", f"for {first}, not {second}")
        for first, second in itertools.combinations(labels, 2)
    ]


def _top_table(entry: dict[str, Any]) -> str:
    from dropmargin.cli.formatting import table_text

    columns = []
    for key, features in (("for", "features_for"), ("against", "features_against")):
        listed = [(one["feature"], one["standardised"], one["coefficient"]) for one in entry[features]]
        cells = [(name, f"{raw if compared is None else compared:+.4g}") for name, compared, raw in listed]
        width = max(len(name) for name, _ in [(entry[key], ""), *cells])
        columns.append([(name.ljust(width), value) for name, value in [(entry[key], ""), *cells]])
    pairs = itertools.zip_longest(*columns, fillvalue=("", ""))
    header, *rows = [[cell for pair in row for cell in pair] for row in pairs]
    return table_text(header, rows)


def _text(path: str, classifier: Any, facts: dict[str, Any], top: list[dict[str, Any]]) -> str:
    import numpy as np

    from dropmargin.cli.formatting import label_texts, noise_text

    labels = label_texts(getattr(classifier, "classes_", np.array([])))
    shown = ", ".join(labels[:_MAX_CLASSES]) + (" ..." if len(labels) > _MAX_CLASSES else "")
    status = "converged" if classifier.converged_ else "not converged"
    lines = [
        ("model", f"{facts['model']}, by dropmargin {facts['written_by']['dropmargin']}"),
        ("file", f"{path}, {facts['bytes']:,} bytes"),
        ("classes", f"{len(labels)}: {shown}" if labels else "none (regression)"),
        (
            "features",
            f"{facts['n_features']}; {facts['n_nonzero']} of {classifier.coef_.size} coefficients are not zero",
        ),
        ("preprocessing", facts["preprocessing"] or "none (numeric input)"),
        ("fit", f"{status}, objective {classifier.objective_:.6g}"),
    ]
    if hasattr(classifier, "noise"):
        groups = getattr(classifier.noise, "groups", None)
        in_groups = "" if groups is None else ", in groups of features that are lost together"
        lines.append(("noise", noise_text(classifier.noise) + in_groups))
    defaults = type(classifier)().get_params(deep=False)
    lines += [
        (name, str(value))
        for name, value in classifier.get_params(deep=False).items()
        if name == "C" or (name != "noise" and value != defaults[name])
    ]
    shown_above = ("features", "classes", "noise", "C", "converged", "objective")
    summary = facts["summary"] or {}
    summary = {name: value for name, value in summary.items() if value is not None and name not in shown_above}
    lines += [("training", "" if summary else "the file has no summary of it")]
    lines += [(f"  {name}", str(value)) for name, value in summary.items()]
    lines += [("data", facts["data_hash"])] if facts["data_hash"] else []
    width = max(len(name) for name, _ in lines)
    blocks = ["\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in lines)]
    is_standardised = hasattr(classifier, "feature_deviations_")
    scale = "times the standard deviation of their features" if is_standardised else "of features as they are"
    blocks.append(f"largest coefficients, {scale}:")
    blocks += [_top_table(entry) for entry in top[:_MAX_CLASSES]]
    return "\n\n".join(blocks)
