"""``dropmargin info MODEL``: describe a model file."""

from __future__ import annotations

from itertools import combinations
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
    """Return the features with the largest absolute coefficients of each output."""
    import numpy as np

    first = 0 if summary.get("zero_based") is True else 1  # index of the first feature in the data file
    top = []
    for output, coef in zip(_output_names(classifier), classifier.coef_, strict=True):
        order = np.argsort(-np.abs(coef), kind="stable")[: min(n, np.count_nonzero(coef))]
        features = [str(j + first) if names is None else names[j] for j in order.tolist()]
        top.append({"output": output, "features": features, "coefficients": coef[order].tolist()})
    return top


def _output_names(classifier: Any) -> list[str]:
    """Return the classes of each output: a positive score stands for the first one."""
    from dropmargin.cli.formatting import label_texts

    labels = label_texts(classifier.classes_)
    is_ovr = len(classifier.coef_) == len(labels) and getattr(classifier, "multi_class", "ovr") != "ovo"
    if len(labels) > 2 and is_ovr:
        return labels
    return [f"{second} against {first}" for first, second in combinations(labels, 2)]


def _text(path: str, classifier: Any, facts: dict[str, Any], top: list[dict[str, Any]]) -> str:
    from dropmargin.cli.formatting import label_texts, noise_text, table_text

    labels = label_texts(classifier.classes_)
    shown = ", ".join(labels[:_MAX_CLASSES]) + (" ..." if len(labels) > _MAX_CLASSES else "")
    status = "converged" if classifier.converged_ else "not converged"
    lines = [
        ("model", f"{facts['model']}, by dropmargin {facts['written_by']['dropmargin']}"),
        ("file", f"{path}, {facts['bytes']:,} bytes"),
        ("classes", f"{len(labels)}: {shown}"),
        (
            "features",
            f"{facts['n_features']}; {facts['n_nonzero']} of {classifier.coef_.size} coefficients are not zero",
        ),
        ("preprocessing", facts["preprocessing"] or "none (numeric input)"),
        ("fit", f"{status}, objective {classifier.objective_:.6g}"),
    ]
    if hasattr(classifier, "noise"):
        lines.append(("noise", noise_text(classifier.noise)))
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
    for entry in top[:_MAX_CLASSES]:
        pairs = zip(entry["features"], entry["coefficients"], strict=True)
        rows = [[feature, f"{coefficient:+.6g}"] for feature, coefficient in pairs]
        blocks.append(table_text([f"features of {entry['output']}", "coefficient"], rows))
    return "\n\n".join(blocks)
