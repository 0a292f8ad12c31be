"""Tables and figures of the stored results, and of nothing else.

python -m benchmarks.tables [NAME ...]     prints tables
python -m benchmarks.tables --write        puts them into the pages, and draws the figures anew

A page has a table between the lines ``<!-- table: NAME -->`` and ``<!-- end -->``; ``tests/test_benchmark_tables.py``
compares. Results are those in ``benchmarks/results``, or in the folder DROPMARGIN_RESULTS.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"<!-- table: ([\w-]+) -->\n(.*?)<!-- end -->", flags=re.DOTALL)
TABLES: dict[str, Callable[[], str]] = {}
_OURS = ("DropoutSVC", "DropoutLogisticRegression")
_PEER = "LinearSVC hinge"

Row = dict[str, Any]


def table(*sources: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Register a function of the rows of these benchmarks that returns a table, by its name with hyphens."""

    def register(function: Callable[..., str]) -> Callable[..., str]:
        def made() -> str:
            rows = [results.read(source) for source in sources]
            empty = [source for source, own in zip(sources, rows, strict=True) if not own]
            missing = " and ".join(f"`python -m benchmarks.{source}`" for source in empty)
            return f"Not measured yet: {missing}.\n" if empty else function(*rows)

        made.__doc__ = function.__doc__
        TABLES[function.__name__.replace("_", "-")] = made
        return function

    return register


def markdown(head: Iterable[str], lines: Iterable[Iterable[Any]]) -> str:
    """Return a Markdown table."""
    head = list(head)
    shown = [head, ["---"] * len(head), *lines]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in shown).replace("| --- ", "|---")


def decimals(value: float | None, digits: int = 3) -> str:
    """Return a number without the zero before the point; nothing for None."""
    if value is None:
        return ""
    shown = f"{value:.{digits}f}"
    return shown.replace("0.", ".", 1) if shown.lstrip("-").startswith("0.") else shown


def ratio(value: float) -> str:
    return decimals(value, 2 if value < 1.0 else 1)


def grid(
    rows: Iterable[Row], down: str, across: str, value: str, names: Mapping[str, str] | None = None, corner: str = ""
) -> str:
    """Return a table of errors, the lowest of each column in bold; ``names`` chooses, orders and renames the rows."""
    found = {(row[down], row[across]): row[value] for row in rows}
    names = names or {name: name for name, _ in found}
    columns = list(dict.fromkeys(column for name, column in found if name in names))
    lowest = {c: min(round(v, 3) for (name, own), v in found.items() if own == c and name in names) for c in columns}
    lines = []
    for name, shown in names.items():
        values = {column: found.get((name, column)) for column in columns}
        cells = [_bold(v, v is not None and round(v, 3) <= lowest[column]) for column, v in values.items()]
        lines.append([shown, *cells])
    return markdown([corner, *map(str, columns)], lines)


def _bold(value: float | None, is_bold: bool) -> str:
    return f"**{decimals(value)}**" if is_bold else decimals(value)


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean of numbers and its standard error."""
    values = np.array(list(values))
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def plus_minus(values: Iterable[float], digits: int = 4) -> str:
    mean, error = mean_and_error(values)
    return f"{decimals(mean, digits)} ± {decimals(error, digits)}"


# Speed --------------------------------------------------------------------------------------------------------------


def fit_ratios(rows: list[Row]) -> list[float]:
    """Return the times of our two classifiers over that of LinearSVC, of the rows of one case."""
    (peer,) = select(rows, model=_PEER)
    return [select(rows, model=model)[0]["seconds"] / peer["seconds"] for model in _OURS]


def fits_by_case(rows: list[Row], **wanted: Any) -> dict[tuple[str, int], list[Row]]:
    """Return the fits by case and number of threads."""
    rows = [row for row in select(rows, tuned=False, **wanted) if row["case"] != "growth"]
    keys = dict.fromkeys((row["case"], row["n_jobs"]) for row in rows)
    return {key: select(rows, case=key[0], n_jobs=key[1]) for key in keys}


@table("fits")
def speed(rows: list[Row]) -> str:
    """Time of a fit over that of LinearSVC(loss="hinge") at the same C, one thread; cases of one size in one line."""
    found = fits_by_case(rows, n_jobs=1)
    lines: dict[str, list[str]] = {}
    for case in ("wide", "mnist", "news20", "books", "kitchen"):
        if own := found.get((case, 1)):
            kind = "images" if case == "mnist" else "text"
            classes = f", {own[0]['n_classes']} classes" if own[0]["n_classes"] > 2 else ""
            lines.setdefault(f"{kind}, {own[0]['n_rows']:,} x {own[0]['n_features']:,}{classes}", []).append(case)
    shown = []
    for size, cases in lines.items():
        ratios = [[ratio(value) for value in fit_ratios(found[case, 1])] for case in cases]
        shown.append([f"{size} ({', '.join(cases)})", *(", ".join(column) for column in zip(*ratios, strict=True))])
    return markdown(["data", *_OURS], shown)


@table("fits")
def fits(rows: list[Row]) -> str:
    """The same with passes, memory and the time of scores."""
    lines = []
    for (case, n_jobs), own in fits_by_case(rows).items():
        ours, (peer,) = [select(own, model=model)[0] for model in _OURS], select(own, model=_PEER)
        cells = [case if n_jobs == 1 else f"{case}, {n_jobs} threads", *(f"{r:.2f}" for r in fit_ratios(own))]
        cells += [", ".join(f"{row['seconds']:.2g}" for row in ours), ", ".join(f"{row['passes']:.1f}" for row in ours)]
        cells.append(", ".join("" if row.get("memory") is None else f"{row['memory']:.2f} X" for row in ours))
        lines.append([*cells, f"{ours[0]['prediction'] / peer['prediction']:.2f}"])
    return markdown(["case", "SVC", "logistic", "s", "passes", "extra memory", "scores over peer's"], lines)


@table("gaps")
def gaps(rows: list[Row]) -> str:
    """Seconds to a relative gap, without noise, and with noise in the last line of each."""
    lines = []
    for row in rows:
        times = ["-" if own is None else f"{own:.3g}" for own in row["seconds"]]
        lines.append([row["case"], row["loss"], row["solver"], *times])
    return markdown(["data", "loss", "solver", "1e-2", "1e-4", "1e-6"], lines)


@table("search")
def searches(rows: list[Row]) -> str:
    """Processor time and choice of searches; ratio to a search over C of LinearSVC(loss="hinge")."""
    lines = []
    for row in rows:
        (peer,) = select(rows, case=row["case"], n_jobs=row["n_jobs"], search="LinearSVC, hinge")
        chosen = ", ".join(f"{name} {value:.2g}" for name, value in row["chosen"].items())
        cells = [row["case"], row["search"], f"{row['seconds']:.2f}", ratio(row["seconds"] / peer["seconds"]), chosen]
        lines.append([*cells, decimals(row["cv_score"], 4), decimals(row.get("test_error"))])
    return markdown(["case", "search", "s", "ratio", "chosen", "score, 5 folds", "test error"], lines)


@table("online")
def online(rows: list[Row]) -> str:
    """One pass over a stream beside a fit."""
    lines = [
        [
            f"{row['case']}, {row['n_rows']:,} x {row['n_features']:,}",
            row["model"],
            f"{100 * row['gap']:.2f} %",
            f"{row['products']:.1f}",
            f"{row['passes']:.1f}",
            f"{row['fit_passes']:.1f}",
            f"{decimals(row['test_error'])}, {decimals(row['fit_test_error'])}",
        ]
        for row in rows
    ]
    head = ["rows", "model", "gap", "products per row", "bare passes", "of `fit`", "test error, of `fit`"]
    return markdown(head, lines)


@table("streaming", "dask_scaling")
def elsewhere(streaming: list[Row], dask: list[Row]) -> str:
    """Fits to files and on a cluster of this machine beside fits in memory: the best time of each."""
    lines = []
    for rows, base, data in ((streaming, "memory", "bytes"), (dask, "2 threads", "n_rows")):
        best = {kind: min(select(rows, kind=kind), key=lambda row: row["seconds"]) for kind in _values(rows, "kind")}
        for kind, row in best.items():
            size = f"{row['bytes'] / 1e9:.1f} GB" if data == "bytes" else f"{row[data]:,} rows"
            memory = f"{row['peak_bytes'] / 1e9:.2f} GB" if "peak_bytes" in row else ""
            seconds = [f"{row['seconds']:.1f}", f"{row['seconds'] / best[base]['seconds']:.2f}"]
            lines.append([size, kind, *seconds, memory, f"{row['passes']:.1f}"])
    return markdown(["data", "rows are in", "s", "ratio", "most memory", "passes"], lines)


# Errors -------------------------------------------------------------------------------------------------------------


@table("text")
def text(rows: list[Row]) -> str:
    """Test error on reviews as presence of words."""
    names = {"LinearSVC": "LinearSVC", "LogisticRegression": "LogisticRegression"}
    names |= {name: f"**{name}CV**" for name in _OURS}
    shown = [row for row in select(rows, weighting="presence") if row["corpus"] in ("books", "kitchen")]
    return grid(shown, "method", "corpus", "test_error", names, "test error")


@table("text")
def text_weightings(rows: list[Row]) -> str:
    """Test error of all weightings of terms, the lowest of each corpus in bold."""
    lines = []
    for corpus, method in dict.fromkeys((row["corpus"], row["method"]) for row in rows):
        lowest = min(round(row["test_error"], 3) for row in select(rows, corpus=corpus))
        errors = [row["test_error"] for row in select(rows, corpus=corpus, method=method)]
        lines.append([corpus, method, *(_bold(error, round(error, 3) <= lowest) for error in errors)])
    return markdown(["documents", "method", *_values(rows, "weighting")], lines)


@table("missing")
def missing_pixels(rows: list[Row]) -> str:
    """Test error on MNIST with missing pixels."""
    long = [
        {"method": f'DropoutSVC, `missing="{row["rule"]}"`', "share": f"{share:.0%}", "error": error}
        for row in rows
        for share, error in zip(row["shares"], row["errors"], strict=True)
    ]
    # Van der Maaten et al. 2013, figure 3: missing pixels are zero and not known to be missing.
    published = (0.076, 0.098, 0.119, 0.189, 0.239, 0.373)
    long += [
        {"method": "MCF logistic, as published", "share": f"{share:.0%}", "error": error}
        for share, error in zip(rows[0]["shares"], published, strict=True)
    ]
    return grid(long, "method", "share", "error", corner="test error, pixels missing")


@table("missing_cells")
def missing_cells(rows: list[Row]) -> str:
    """Test error on ten tables with half of the cells missing."""
    names = {
        "DropoutLogisticRegression (conditional)": '`missing="conditional"`',
        "DropoutLogisticRegression (conditional, target_noise=0.5)": "the same, `target_noise=0.5`",
        "LogisticRegression (iterative)": "`IterativeImputer`, LogisticRegression",
        "HistGradientBoosting": "HistGradientBoosting, complete rows",
        "HistGradientBoosting (copies)": "HistGradientBoosting, copies",
    }
    half = [row | {"error": row["errors"][2]} for row in rows]
    return grid(half, "method", "table", "error", names, "test error, half of the cells missing")


def lost_column_means(rows: list[Row]) -> list[Row]:
    """Return the mean test error of each method and share over the tables of classes that all were measured on."""
    regressions = ("diabetes", "diamonds", "flights")  # their error is in the units of the target
    rows = [row for row in select(rows, kind="columns") if row["table"] not in regressions]
    measured = [{row["table"] for row in select(rows, method=method)} for method in _values(rows, "method")]
    common = set.intersection(*measured)
    return [
        {"method": method, "share": share, "error": float(np.mean([row["error"] for row in own])), "tables": len(own)}
        for method in _values(rows, "method")
        for share in _values(rows, "share")
        if (own := [row for row in select(rows, method=method, share=share) if row["table"] in common])
    ]


@table("lost_columns")
def lost_columns(rows: list[Row]) -> str:
    """Mean test error with columns lost."""
    means = [row | {"share": f"{row['share']:.0%}"} for row in lost_column_means(rows)]
    order = sorted(_values(means, "method"), key=lambda name: sum(row["error"] for row in select(means, method=name)))
    return grid(means, "method", "share", "error", {name: name for name in order}, "columns lost")


@table("lost_columns")
def lost_columns_by_table(rows: list[Row]) -> str:
    """Test error of each table and method with columns lost, and seconds of the processor."""
    import pandas as pd

    from benchmarks.lost_columns import markdown

    return markdown(pd.DataFrame(rows), "columns") + "\n"


@table("stability")
def stability(rows: list[Row]) -> str:
    """Absolute error of `predict_stability` against draws from the noise."""
    lines = []
    for name, noise in dict.fromkeys((row["data"], row["noise"]) for row in rows):
        own = select(rows, data=name, noise=noise)
        cells = [name, noise]
        for method in ("normal", "auto"):
            mean = np.average([row[method]["mean"] for row in own], weights=[row["rows"] for row in own])
            cells += [decimals(float(mean)), decimals(max(row[method]["max"] for row in own))]
        lines.append([*cells, sum(row["broken"] for row in own)])
    return markdown(["data", "noise", "normal: mean", "max", "auto: mean", "max", "bounds broken"], lines)


@table("embeddings")
def embeddings(rows: list[Row]) -> str:
    """Test error of classifiers of features of frozen networks and of text: mean and standard error of the draws."""
    methods, lines = _values(rows, "method"), []
    for name, size in dict.fromkeys((row["features"], row["per_class"]) for row in rows):
        own = select(rows, features=name, per_class=size)
        errors = {method: [row["error"] for row in select(own, method=method)] for method in methods}
        cells = [name, size, *(plus_minus(errors[method]) for method in (*_OURS, "LinearSVC", "LogisticRegression"))]
        for method in _OURS:
            gain = np.subtract(errors[f"{method}, no noise"], errors[method])
            rates = [row["noise"] for row in select(own, method=method)]
            cells.append(f"{plus_minus(gain)} ({np.median(rates):g})")
        lines.append(cells)
    gains = ["gain of the rate, SVC", "logistic"]
    return markdown(["features", "per class", *_OURS, "LinearSVC", "LogisticRegression", *gains], lines)


@table("torch_head")
def torch_head(rows: list[Row]) -> str:
    """Test error on MNIST of networks by their last layer, and the epochs to the same validation error."""
    lines = []
    for loss in _values(rows, "loss"):
        own = select(rows, loss=loss)
        # The error that all heads reach, for each seed.
        common = {
            seed: max(min(row["validation_errors"]) for row in select(own, seed=seed)) for seed in _values(own, "seed")
        }
        for head in _values(own, "head"):
            runs = select(own, head=head)
            epochs = [1 + int(np.argmax(np.array(r["validation_errors"]) <= common[r["seed"]])) for r in runs]
            cells = [loss, head, f"{runs[0]['rate']:g}", *(plus_minus(e) for e in zip(*_tests(runs), strict=True))]
            lines.append([*cells, f"{np.mean(epochs):.1f}", f"{np.mean([r['seconds_per_epoch'] for r in runs]):.2f}"])
    head = ["loss", "dropout", "rate", "complete", "30 % missing", "50 % missing"]
    return markdown([*head, "epochs to the same error", "s per epoch"], lines)


def _tests(runs: list[Row]) -> list[list[float]]:
    return [row["test_errors"] for row in runs]


def _values(rows: Iterable[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


# Figures and pages --------------------------------------------------------------------------------------------------


def draw_overview(path: Path) -> None:
    """Draw the ratios of the fits on one thread and, beside them, the growth of the time with the number of rows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained", width_ratios=[2, 1])
    cases = {case: fit_ratios(rows) for (case, _), rows in fits_by_case(results.read("fits"), n_jobs=1).items()}
    for k, model in enumerate(_OURS):
        places = np.arange(len(cases)) + 0.4 * k - 0.2
        bars = axes[0].bar(places, [own[k] for own in cases.values()], width=0.38, label=model)
        axes[0].bar_label(bars, fmt="%.2f", fontsize=8)
    axes[0].axhline(1.0, color="black", linewidth=0.8)
    axes[0].set(yscale="log", xticks=range(len(cases)), xticklabels=cases, ylabel=f"time of a fit / {_PEER}")
    ticks = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0]
    axes[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0].tick_params(axis="y", which="minor", left=False, labelleft=False)
    axes[0].legend()
    rows = select(results.read("fits"), case="growth")
    n_rows, seconds = (np.array([row[name] for row in rows]) for name in ("n_rows", "seconds"))
    slope = np.polyfit(np.log(n_rows), np.log(seconds), 1)[0]
    axes[1].loglog(n_rows, seconds, "o-", label=f"DropoutSVC, exponent {slope:.2f}")
    axes[1].loglog(n_rows, seconds[0] * n_rows / n_rows[0], "--", color="grey", label="exponent 1")
    axes[1].set(xlabel="rows, 80 words each", ylabel="seconds")
    axes[1].legend()
    figure.savefig(path, dpi=120)


def with_tables(page: str) -> str:
    """Return a page with its tables made anew."""

    def block(match: re.Match[str]) -> str:
        if match[1] not in TABLES:
            raise ValueError(f"there is no table {match[1]!r}: choose from {[*TABLES]}.")
        return f"<!-- table: {match[1]} -->\n{TABLES[match[1]]()}<!-- end -->"

    return BLOCK.sub(block, page)


def main() -> None:
    """Print tables, or write them into the pages."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {[*TABLES]}; all that are measured if none is named")
    parser.add_argument("--write", action="store_true", help="write the tables into the pages, and draw the figures")
    options = parser.parse_args()
    if wrong := [name for name in options.names if name not in TABLES]:
        parser.error(f"unknown table {wrong[0]!r}: choose from {[*TABLES]}")
    if options.write:
        for path in PAGES:
            old = path.read_text(encoding="utf-8")
            if (new := with_tables(old)) != old:
                path.write_text(new, encoding="utf-8")
                print(f"written: {path.relative_to(ROOT)}")
        draw_overview(results.FOLDER / "overview.png")
        from benchmarks import plot

        plot.write()
        return
    for name in options.names or TABLES:
        made = TABLES[name]()
        if options.names or not made.startswith("Not measured"):
            print(f"{TABLES[name].__doc__}\n\n{made}")


if __name__ == "__main__":
    main()
