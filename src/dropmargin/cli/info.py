"""``dropmargin info MODEL``: what a model file holds."""

from __future__ import annotations

import argparse
from typing import Any

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console

_MOST_CLASSES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("model", help="the model file")
    top = "how many features of the largest weights to list, per class (default: 10)"
    parser.add_argument("--top", type=shared.at_least_one, default=10, metavar="N", help=top)


def run(options: argparse.Namespace, console: Console) -> int:
    """Read the file and say what it says."""
    from sklearn.pipeline import Pipeline

    from dropmargin.cli.main import SUCCESS
    from dropmargin.io.model import load_described

    model, facts = load_described(options.model)
    classifier = model[-1] if isinstance(model, Pipeline) else model
    names = facts.pop("feature_names")
    facts["preprocessing"] = None if facts["preprocessing"] is None else facts["preprocessing"]["kind"]
    tops = _top_features(classifier, names, facts["summary"] or {}, options.top)
    text = _text(options.model, classifier, facts, tops)
    console.result({"path": options.model} | facts | {"top_features": tops}, text)
    return SUCCESS


def _top_features(classifier: Any, names: list[str] | None, summary: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """Return the features of the largest weights in size, of each row of coefficients."""
    import numpy as np

    first = 0 if summary.get("zero_based") is True else 1  # as files count them
    tops = []
    for title, weights in zip(_titles(classifier), classifier.coef_, strict=True):
        n_shown = min(n, np.count_nonzero(weights))
        order = np.argsort(-np.abs(weights), kind="stable")[:n_shown].tolist()
        features = [str(j + first) if names is None else names[j] for j in order]
        tops.append({"for": title, "features": features, "weights": [float(weights[j]) for j in order]})
    return tops


def _titles(classifier: Any) -> list[str]:
    """Return what the positive scores of each row of coefficients speak for."""
    from itertools import combinations

    from dropmargin.cli.predictions import label_texts

    labels = label_texts(classifier.classes_)
    if len(labels) == 2:
        return [f"{labels[1]} (against {labels[0]})"]
    if len(classifier.coef_) == len(labels) and getattr(classifier, "multi_class", "ovr") == "ovr":
        return labels
    return [f"{second} (against {first})" for first, second in combinations(labels, 2)]


def _text(path: str, classifier: Any, facts: dict[str, Any], tops: list[dict[str, Any]]) -> str:
    from dropmargin.cli.predictions import label_texts
    from dropmargin.cli.wording import noise_text, size_text, table_text

    labels = label_texts(classifier.classes_)
    shown = ", ".join(labels[:_MOST_CLASSES]) + (" ..." if len(labels) > _MOST_CLASSES else "")
    summary = facts["summary"] or {}
    n_weights = classifier.coef_.size
    lines = [
        ("model", f"{facts['model']}, by dropmargin {facts['written_by']['dropmargin']}"),
        ("file", f"{path}, {size_text(facts['bytes'])}, {facts['container']}"),
        ("classes", f"{len(labels)}: {shown}"),
        ("features", f"{facts['n_features']}; {facts['n_nonzero']} of {n_weights} weights are not zero"),
        ("before", facts["preprocessing"] or "nothing: rows are numbers"),
        ("fit", f"{'converged' if classifier.converged_ else 'not converged'}, objective {classifier.objective_:.6g}"),
    ]
    if hasattr(classifier, "noise"):
        lines.insert(2, ("noise", noise_text(classifier.noise)))
    usual = type(classifier)().get_params(deep=False)
    lines += [
        (f"  {name}", str(value))
        for name, value in classifier.get_params(deep=False).items()
        if name == "C" or (name != "noise" and value != usual[name])
    ]
    lines += [("training", "" if summary else "the file says nothing of it")]
    lines += [(f"  {name}", str(value)) for name, value in summary.items() if value is not None]
    lines += [("data", facts["data_hash"])] if facts["data_hash"] else []
    width = max(len(name) for name, _ in lines)
    blocks = ["\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in lines)]
    for top in tops[:_MOST_CLASSES]:
        rows = [[feature, f"{weight:+.6g}"] for feature, weight in zip(top["features"], top["weights"], strict=True)]
        blocks.append(table_text([f"speaks for {top['for']}", "weight"], rows))
    return "\n\n".join(blocks)
