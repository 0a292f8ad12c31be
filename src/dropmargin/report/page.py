"""A page and its parts: Matplotlib figures as SVG, tables, and a Jinja2 template that escapes every text.

A figure has readable text, the colours of the page's theme, and the same bytes every time.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

from dropmargin.io.atomic import write_atomically
from dropmargin.plotting.style import COLOURS, UNPRINTABLE, import_matplotlib

_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}href"
# Colours that are drawn by Matplotlib and then replaced by the variables of colours.css. Black and white stay.
_INK, _PAPER = "#1b1f23", "#fefefe"
_VARIABLES = {colour: f"var(--line-{index})" for index, colour in enumerate(COLOURS)}
_VARIABLES |= {_INK: "var(--ink)", _PAPER: "var(--paper)"}
#: Matplotlib's parameters under which a figure must be made and drawn for `themed_svg`.
PLOT_STYLE: dict[str, Any] = {
    "font.size": 10.0,
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.facecolor": _PAPER,
    "legend.facecolor": _PAPER,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
}


def draw_svg(
    draw: Callable[[Any], Any], *, title: str, description: str, size: Any = (4.9, 3.6), standalone: bool = False
) -> str:
    """Return a plot as SVG.

    The state of pyplot and Matplotlib's ``rcParams`` stay as they are, and neither has an influence on the result.

    Parameters
    ----------
    draw : callable
        Is called with a Matplotlib figure in constrained layout, and draws on it.
    title : str
        The ``<title>`` of the SVG.
    description : str
        The ``<desc>`` of the SVG, for readers who do not see the plot.
    size : tuple of float, default=(4.9, 3.6)
        Width and height in inches; a page scales the plot to the width of its column.
    standalone : bool, default=False
        Whether the SVG is a file and not a part of a page: it then contains its colours, light and dark.

    Returns
    -------
    str
    """
    style, figures = import_matplotlib("style"), import_matplotlib("figure")
    with style.context(["default", PLOT_STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser has other fonts
        figure = figures.Figure(figsize=size, layout="constrained")
        draw(figure)
        return themed_svg(figure, title=title, description=description, standalone=standalone)


def themed_svg(figure: Any, *, title: str, description: str, standalone: bool = False) -> str:
    """Return a Matplotlib figure as SVG in the colours of the reader's theme.

    Parameters
    ----------
    figure : matplotlib Figure
        Made under `PLOT_STYLE`, which must still be set.
    title, description, standalone
        As for `draw_svg`.

    Returns
    -------
    str
    """
    buffer = io.StringIO()
    salt = f"{title}\n{description}"  # plots of one page need different ids
    with import_matplotlib().rc_context({"svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    root = ElementTree.fromstring(buffer.getvalue())
    _clean(root)
    for tag, text in (("desc", description), ("title", title)):
        element = ElementTree.Element(f"{_SVG}{tag}")
        element.text = UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
        root.insert(0, element)
    if standalone:
        sheet = ElementTree.Element(f"{_SVG}style")
        sheet.text = colour_sheet() + "svg { background: var(--paper); }\n"
        root.insert(2, sheet)
    ElementTree.register_namespace("", _SVG.strip("{}"))
    return ElementTree.tostring(root, encoding="unicode")


def colour_sheet() -> str:
    """Return the style sheet with the colours of light and dark pages."""
    return files("dropmargin.report").joinpath("colours.css").read_text(encoding="utf-8")


def _clean(root: ElementTree.Element) -> None:
    """Remove fixed sizes, unused ids, Matplotlib's style sheet and fonts; replace colours by variables."""
    used = set(re.findall(r"#([\w-]+)", ElementTree.tostring(root, encoding="unicode")))
    for parent in root.iter():
        for child in list(parent):
            if child.tag in (f"{_SVG}style", f"{_SVG}metadata") or child.tag.endswith("}metadata"):
                parent.remove(child)
    for element in root.iter():
        attributes = element.attrib
        if attributes.get("id") not in used:
            attributes.pop("id", None)
        if _XLINK in attributes:
            attributes["href"] = attributes.pop(_XLINK)
        for name in attributes.keys() & {"d", "x", "y", "transform"}:
            attributes[name] = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", attributes[name])
        if "style" in attributes:
            attributes["style"] = _themed(attributes["style"])
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")


def _themed(style: str) -> str:
    """Return a style attribute with the colours and the font of the page."""
    style = re.sub(r"font: ((?:[a-z0-9]+ )*?)([\d.]+px) [^;]+", _font, style)
    return re.sub(r"#[0-9a-f]{6}", lambda match: _VARIABLES.get(match[0], match[0]), style)


def _font(match: re.Match[str]) -> str:
    weight = "; font-weight: 700" if re.search("700|bold", match[1]) else ""
    return f"font-size: {match[2]}{weight}"


# Pages --------------------------------------------------------------------------------------------------------------

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
        raise ImportError("HTML reports need Jinja2. Install it with: pip install 'dropmargin[cli]'") from error
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
