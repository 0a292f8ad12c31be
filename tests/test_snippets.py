"""The Python code in README.md and docs/ runs as it is printed: the blocks of a page one after the other."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from dropmargin.cli import commands

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    if "```python" in page.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.filterwarnings("ignore::dropmargin.errors.ParameterWarning")
def test_the_snippets_of_a_page_run(name, tmp_path, monkeypatch, draw_in_memory):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "docs" / "customers.csv", tmp_path)  # the table of first_model.md
    text = (ROOT / name).read_text(encoding="utf-8")
    scope: dict = {"__name__": "__main__"}
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE))
    assert len(blocks) == text.count("```python")
    for block in blocks:
        first = text[: block.start(1)].count("\n")
        exec(compile("\n" * first + block[1], name, "exec"), scope)  # the lines of errors are those of the page


# Commands -------------------------------------------------------------------------------------------------------------


def _commands(name):
    """Return the arguments of the commands of ``dropmargin`` that a page prints, each on a line of its own."""
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = re.findall(
        r"^ {4}dropmargin ((?:train|cv|predict|explain|evaluate|stress|info|export) .*)$", text, re.MULTILINE
    )
    return [shlex.split(line.split(" > ")[0], comments=True) for line in lines]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (page.name, command)
        for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
        for command in _commands(page)
    ],
)
def test_the_options_of_a_printed_command_exist(name, command):
    first, *rest = command
    context = commands.dropmargin.commands[first].make_context(first, rest)  # a wrong value is an exception
    assert context.args == []


def test_the_commands_of_the_readme_run(run, tmp_path):
    for name in ("customers.csv", "new.csv"):
        shutil.copy(ROOT / "docs" / "customers.csv", tmp_path / name)
    for command in _commands("README.md"):
        run(*command)
    assert set((tmp_path / "labels.csv").read_text().split()) == {"label", "yes", "no"}


def test_the_commands_of_the_first_page_run(run, tmp_path):
    shutil.copy(ROOT / "docs" / "customers.csv", tmp_path)
    outputs = [run(*command).out for command in _commands("docs/first_model.md")]
    assert "chosen: TableClassifier" in outputs[0]
    assert "visits" in outputs[1]
    assert len((tmp_path / "labels.csv").read_text().split()) == 201
