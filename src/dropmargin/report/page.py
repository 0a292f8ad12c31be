"""The parts of a page and the page itself, made by a Jinja2 template that escapes every text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from dropmargin.io.atomic import write_atomically
from dropmargin.report.svg import colour_sheet

# Control characters, which HTML does not allow, except tab and newline.
_CONTROL = dict.fromkeys({*range(32), *range(127, 160)} - {9, 10}, "\N{REPLACEMENT CHARACTER}")


@dataclass(frozen=True)
class Plot:
    """A plot made by `draw_svg`, with the title above and the caption below it."""

    svg: str
    title: str
    caption: str


@dataclass(frozen=True)
class Table:
    """A table. Wide tables scroll in their own box, in which the first column stays in view.

    Parameters
    ----------
    caption : str
    header : sequence of str
    rows : sequence of sequences of str
        The first cell of a row is its name.
    bold : set of (row, column)
        Cells in bold; column 0 is the name.
    sub_rows : set of int
        Rows that belong to the row above them, in smaller type.
    is_text : bool
        Whether the cells are text, aligned to the left, instead of numbers.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold: frozenset[tuple[int, int]] = frozenset()
    sub_rows: frozenset[int] = frozenset()
    is_text: bool = False


@dataclass(frozen=True)
class Section:
    """A section of a page. Its parts appear in the order of the parameters; empty ones are left out.

    Parameters
    ----------
    title : str
    verdict : str
        The result in one sentence.
    plots : sequence of Plot
        Side by side where the page is wide enough.
    paragraphs : sequence of str
    tables : sequence of Table
    claims : sequence of (str, bool, str)
        Statements, whether they hold, and the numbers.
    facts : mapping of str to str
        Names and values, such as versions.
    command : str
        The command that produced the results.
    """

    title: str
    verdict: str = ""
    plots: Sequence[Plot] = ()
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    claims: Sequence[tuple[str, bool, str]] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    command: str = ""


def render_page(title: str, verdict: str, sections: Sequence[Section], notes: Sequence[str] = ()) -> str:
    """Return a page as HTML.

    Parameters
    ----------
    title : str
    verdict : str
        The result in one sentence, at the top of the page.
    sections : sequence of Section
    notes : sequence of str
        Paragraphs below the verdict.

    Returns
    -------
    str
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise ImportError(
            "HTML reports need Jinja2, which is not installed. Install it with: pip install 'dropmargin[cli]'"
        ) from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["prose"] = lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%")
    source = files("dropmargin.report").joinpath("page.html").read_text(encoding="utf-8")
    page = environment.from_string(source).render(
        title=title, verdict=verdict, sections=sections, notes=notes, colours=colour_sheet()
    )
    return page.translate(_CONTROL)


def write_page(
    path: str | os.PathLike[str], title: str, verdict: str, sections: Sequence[Section], notes: Sequence[str] = ()
) -> None:
    """Write a page to a file, which is replaced as a whole or not at all.

    Parameters
    ----------
    path : str or path-like
    title, verdict, sections, notes
        As for `render_page`.
    """
    # File names may contain unpaired surrogates, which cannot be encoded.
    page = render_page(title, verdict, sections, notes).encode("utf-8", errors="replace")
    write_atomically(path, [page])
