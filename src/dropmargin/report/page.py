"""A page of words, pictures and tables as one HTML file that needs nothing else: no network, no script.

A page is a list of parts; each part knows how to write itself. All text is escaped, whatever it holds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Protocol

from dropmargin.io.model.atomic import write_atomically

# Even a text that was not escaped could neither run nor fetch anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


# Control characters, which a page may not have, but for the tab and the newline.
_CONTROL = dict.fromkeys({*range(32), *range(127, 160)} - {9, 10}, "\N{REPLACEMENT CHARACTER}")


class Part(Protocol):
    """What a page is made of."""

    def html(self) -> str:
        """Return the part as HTML."""


@dataclass(frozen=True)
class Heading:
    """The title of what follows."""

    text: str

    def html(self) -> str:
        """Return an ``h2``."""
        return f"<h2>{escape(self.text)}</h2>"


@dataclass(frozen=True)
class Paragraphs:
    """Sentences; with ``lead`` those that are to be read if nothing else is, with ``small`` a note on the side."""

    texts: Sequence[str]
    lead: bool = False
    small: bool = False

    def html(self) -> str:
        """Return one ``p`` per text."""
        kind = ' class="small"' if self.small else ""
        texts = "\n".join(f"<p{kind}>{_prose(text)}</p>" for text in self.texts)
        return f'<div class="lead">\n{texts}\n</div>' if self.lead else texts


@dataclass(frozen=True)
class Figure:
    """A picture made by `dropmargin.report.chart`, with a title and a caption."""

    svg: str
    title: str
    caption: str

    def html(self) -> str:
        """Return a ``figure``."""
        return (
            f"<figure>\n<h3>{escape(self.title)}</h3>\n{self.svg}\n"
            f"<figcaption>{_prose(self.caption)}</figcaption>\n</figure>"
        )


@dataclass(frozen=True)
class Figures:
    """Pictures side by side where there is room for it."""

    figures: Sequence[Figure]

    def html(self) -> str:
        """Return the figures in a grid."""
        return '<div class="figures">\n' + "\n".join(figure.html() for figure in self.figures) + "\n</div>"


@dataclass(frozen=True)
class Table:
    """A table, which scrolls in a box of its own if it is too wide.

    Parameters
    ----------
    caption : str
    header : sequence of str
    rows : sequence of sequences of str
        The first cell of a row is its name.
    best : set of (row, column)
        Cells that stand out; the column counts the first cell, too.
    words : bool
        Whether the cells are words, which stand to the left, and not numbers.
    worst : set of (row, column)
        Cells that stand out the other way.
    below : set of int
        Rows that add to the one above them.
    sentences : bool
        Whether the cells are so long that they should break, and stand below each other on a telephone.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()
    words: bool = False
    worst: frozenset[tuple[int, int]] = frozenset()
    below: frozenset[int] = frozenset()
    sentences: bool = False

    def html(self) -> str:
        """Return a ``table`` in a box that can be scrolled by the keyboard, too."""
        plain = ' class="words"' if self.words else ""
        kind = ' class="sentences"' if self.sentences else ""
        head = "".join(f'<th{plain} scope="col">{escape(cell)}</th>' for cell in self.header)
        lines = []
        for i, (name, *cells) in enumerate(self.rows):
            marked = (f"<td{self._kind(i, j) or plain}>{escape(cell)}</td>" for j, cell in enumerate(cells, start=1))
            row = '<tr class="below">' if i in self.below else "<tr>"
            lines.append(f'{row}<th scope="row">{escape(name)}</th>{"".join(marked)}</tr>')
        body = "\n".join(lines)
        return (
            f'<figure class="table">\n<figcaption>{_prose(self.caption)}</figcaption>\n'
            f'<section class="scroll" tabindex="0" aria-label="{escape(self.caption)}">\n'
            f"<table{kind}>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</section>\n</figure>"
        )

    def _kind(self, row: int, column: int) -> str:
        """Return the class of a cell that stands out."""
        return next((f' class="{kind}"' for kind in ("best", "worst") if (row, column) in getattr(self, kind)), "")


@dataclass(frozen=True)
class Facts:
    """Names and what they stand for."""

    entries: Mapping[str, str]

    def html(self) -> str:
        """Return a ``dl``."""
        lines = "\n".join(f"<dt>{escape(name)}</dt><dd>{_prose(text)}</dd>" for name, text in self.entries.items())
        return f"<dl>\n{lines}\n</dl>"


@dataclass(frozen=True)
class Code:
    """What was typed."""

    text: str

    def html(self) -> str:
        """Return a ``pre``."""
        return f"<pre><code>{escape(self.text)}</code></pre>"


def _prose(text: str) -> str:
    """Return a text escaped, with percent signs that stay on the line of their number."""
    return escape(text.replace(" %", "\N{NO-BREAK SPACE}%"))


def render_page(title: str, parts: Sequence[Part]) -> str:
    """Return a whole page.

    Parameters
    ----------
    title : str
    parts : sequence of Part
        In the order of reading.
    """
    sheets = (files("dropmargin.report").joinpath(name) for name in ("chart.css", "page.css"))
    style = "".join(sheet.read_text(encoding="utf-8") for sheet in sheets)
    body = "\n".join(part.html() for part in parts)
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{body}
</main>
</body>
</html>
"""
    return page.translate(_CONTROL)


def write_page(path: str | os.PathLike[str], title: str, parts: Sequence[Part]) -> None:
    """Write a page, whole or not at all."""
    # A name may hold half of a pair of surrogates, which no encoding has.
    write_atomically(path, [render_page(title, parts).encode("utf-8", errors="replace")])
