"""``dropmargin info`` and ``dropmargin export``: the content of a model file, and its export to ONNX."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import click

from dropmargin.cli.options import FORCE
from dropmargin.cli.program import Console, check_files, command, table_text

_SHOWN = ("data", "rows", "columns", "target", "score", "training_score")


@command(
    click.argument("model"),
    click.option("--top", type=click.IntRange(0), default=10, help="Columns or features to list for each class."),
    short_help="Show the content of a model file.",
)
def info(options: SimpleNamespace, console: Console) -> None:
    """Show the content of the model file MODEL: what was trained on which columns, and what it leans on."""
    check_files([options.model], {}, force=False)
    import dropmargin
    from dropmargin.io.model import load_described

    model, facts = load_described(options.model)
    summary = facts["summary"] or {}
    lines = [f"{facts['model']}, {facts['bytes']} bytes, dropmargin {facts['written_by']['dropmargin']}"]
    lines += [f"{name}: {summary[name]}" for name in _SHOWN if summary.get(name) is not None]
    if facts["classes"] is not None:
        lines.append(f"classes: {', '.join(map(str, facts['classes'][:20]))}")
    if facts["columns"]:
        rows = [[name, kind, str(n or ""), why and f"left out: {why}"] for name, kind, n, why in facts["columns"]]
        lines += ["", table_text(["column", "kind", "features", ""], rows)]
    else:
        lines.append(f"features: {facts['n_features']}")
    if options.top:
        facts["top"] = _top_facts(dropmargin.top_features(model, n=options.top))
        for name, listed in facts["top"].items():
            lines += ["", f"{name}:", *(f"  {feature}  {value:.4g}" for feature, value in listed)]
    if hasattr(model, "basis_"):
        facts["chosen"] = {"basis": model.basis_, "scaling": model.scaling_, "noise": model.noise_, "C": model.C_}
        lines.insert(1, ", ".join(f"{key} {value}" for key, value in facts["chosen"].items()))
    console.result(facts | {"command": "info"}, "\n".join(lines))


def _top_facts(top: Any) -> dict[str, list[tuple[str, float]]]:
    """Return the strongest features of each output with their values."""
    listed = zip(top.classes, top.names, top.strengths, strict=True)
    return {str(output): list(zip(names, map(float, own), strict=True)) for output, names, own in listed}


@command(
    click.argument("model"),
    click.argument("out"),
    click.option("--complete-rows", is_flag=True, help="Export for rows without missing values."),
    FORCE,
    short_help="Export a model to ONNX.",
)
def export(options: SimpleNamespace, console: Console) -> None:
    """Export the model file MODEL as the ONNX graph OUT."""
    check_files([options.model], {"OUT": options.out}, force=options.force)
    from dropmargin import load
    from dropmargin.io.onnx import export_onnx

    model = load(options.model)
    if options.complete_rows:
        getattr(model, "model_", model).set_params(missing="error")
    export_onnx(model, options.out)
    console.result({"command": "export", "model": options.model, "saved": options.out}, f"saved {options.out}")
