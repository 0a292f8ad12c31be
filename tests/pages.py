"""Checks for every HTML page: it is well-formed, loads nothing and runs nothing; and contrast in both themes."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_VOID = {"meta", "link", "img", "br", "hr", "input"}
_FORBIDDEN = {"script", "img", "iframe", "object", "embed", "base", "form", "foreignobject", "animate", "set"}


class _Checker(HTMLParser):
    """Collects elements and texts, and checks that elements are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        last = self.open.pop() if self.open else None
        assert last == tag, f"</{tag}> closes <{last}>"

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)


def parse(page):
    checker = _Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


def words(page):
    """Return the text of a page, with single spaces."""
    return " ".join("".join(parse(page).texts).replace("\N{NO-BREAK SPACE}", " ").split())


def rows_of(page):
    """Return the rows of all tables: whether it is a sub-row, its name, and its cells as (is bold, text)."""
    found = re.findall(r'<tr( class="sub")?><th scope="row">(.*?)</th>(.*?)</tr>', page)
    return [
        (bool(sub), name, [(bool(bold), text) for bold, text in re.findall(r'<td( class="bold")?>(.*?)</td>', cells)])
        for sub, name, cells in found
    ]


def assert_self_contained(page):
    """No element of the page loads or runs anything, references stay in the page, and no id occurs twice."""
    elements = parse(page).elements
    assert not {tag for tag, _ in elements} & _FORBIDDEN
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in elements:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("src", "srcset", "action", "xlink:href"):
            assert name not in attributes, (tag, attributes)
        if "href" in attributes:
            allowed = {"link": "data:,$", "image": "data:image/png;base64,"}.get(tag, "#")
            assert re.match(allowed, attributes["href"]), (tag, attributes)
            assert attributes["href"].removeprefix("#") in ids or allowed != "#", (tag, attributes)
        assert not re.search(r"url\((?!#)|expression|@import", str(attributes)), (tag, attributes)
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    assert "url(" not in style
    assert "@import" not in style
    outside = page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|//[a-z]", outside)


def themes(style):
    """Return the colours of the light and the dark theme by name."""
    return [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part)) for part in re.findall(r":root \{(.*?)\}", style, re.S)
    ]


def contrast(first, second):
    """Return the contrast ratio of two colours (WCAG 2)."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)
