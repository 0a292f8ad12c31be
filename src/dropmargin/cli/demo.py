"""``dropmargin demo FOLDER``: sensors that die, from a table to a report."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import click

from dropmargin.cli.options import FORCE
from dropmargin.cli.program import Console, check_files, command

FILES = ("train.csv", "test.csv", "model.safetensors", "report.html")
_N_SENSORS, _N_ROWS, _STATES = 16, 1200, ("idle", "leak", "overheated", "overloaded")


def sensor_table(seed: int = 0) -> Any:
    """Return rows of 16 sensors that see four hidden causes, each in its own way, and the state of the machine.

    Parameters
    ----------
    seed : int, default=0
        Seed of the random numbers.

    Returns
    -------
    table : pandas.DataFrame
        The columns of the sensors and ``state``.
    """
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(_N_ROWS, 4))
    mixing = rng.normal(size=(4, _N_SENSORS))
    readings = np.tanh(0.7 * causes @ mixing) * 40.0 + 60.0 + rng.normal(0.0, 3.0, (_N_ROWS, _N_SENSORS))
    scores = np.column_stack([np.abs(causes[:, 0]) - 0.6, causes[:, 1], causes[:, 2], causes[:, 3]])
    table = pd.DataFrame(readings.round(2), columns=[f"sensor_{number:02d}" for number in range(1, _N_SENSORS + 1)])
    table["state"] = np.array(_STATES)[scores.argmax(axis=1)]
    return table


@command(
    click.argument("folder", default="dropmargin-demo"),
    FORCE,
    short_help="See sensors die: a table, a model, a report.",
)
def demo(options: SimpleNamespace, console: Console) -> None:
    """Write a table of sensors to FOLDER, train on it, let the sensors die, and write a report.

    It takes less than a minute on two cores.
    """
    paths = {name: os.path.join(options.folder, name) for name in FILES}
    os.makedirs(options.folder, exist_ok=True)
    check_files([], paths, force=options.force)
    from dropmargin import save
    from dropmargin.cli.stress import compare, stress, write_report
    from dropmargin.cli.train import read_training
    from dropmargin.io.atomic import write_atomically

    table = sensor_table()
    half = _N_ROWS // 2
    for name, part in (("train.csv", table[:half]), ("test.csv", table[half:])):
        write_atomically(paths[name], [part.to_csv(index=False).encode()])
    given = [paths["train.csv"], paths["test.csv"], "--target", "state", "--delete", "0,0.25,0.5,0.75"]
    settings = SimpleNamespace(**stress.make_context("stress", given).params, command_line=options.command_line)
    console.note(f"{_N_SENSORS} sensors, {half} rows for training and {half} for testing, in {options.folder}")
    train, test = (read_training(paths[name], settings, console) for name in ("train.csv", "test.csv"))
    result = compare(train, test, settings, console)
    save(result["models"][0], paths["model.safetensors"], summary=train.summary, data_hash=train.data_hash)
    write_report(paths["report.html"], result, settings)
    ours, *others = [(name, errors[2]) for name, errors in result["errors"].items()]
    listed = ", ".join(f"{name} {error:.1%}" for name, error in others)
    line = f"Half of the sensors are dead: {ours[0]} is wrong in {ours[1]:.1%} of the rows, {listed}."
    facts = {"command": "demo", "verdict": line, "errors": result["errors"], "files": paths}
    text = f"{line}\nreport: {paths['report.html']}\ntry: dropmargin info {paths['model.safetensors']}"
    console.result(facts, text)
