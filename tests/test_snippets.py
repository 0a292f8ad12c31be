"""The Python code in README.md and docs/ runs as it is printed: the blocks of a page one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
    text = (ROOT / name).read_text(encoding="utf-8")
    scope: dict = {"__name__": "__main__"}
    for block in re.finditer(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        first = text[: block.start(1)].count("\n")
        exec(compile("\n" * first + block[1], name, "exec"), scope)  # the lines of errors are those of the page


def test_there_are_pages_with_snippets():
    assert "README.md" in PAGES
    assert len(PAGES) > 10
