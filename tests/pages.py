"""What every page must be: well-formed HTML that fetches and runs nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_VOID = {"meta", "link", "img", "br", "hr", "input"}


class _Checker(HTMLParser):
    """Collects elements and text, and insists that every element is closed in its turn."""

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
        self.texts.append(data)


def parse(page):
    checker = _Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


def assert_self_contained(page):
    """No element of the page fetches or runs anything."""
    checker = parse(page)
    assert not {tag for tag, _ in checker.elements} & {"script", "img", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in checker.elements:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("src", "href", "srcset", "action", "xlink:href", "style"):
            assert attributes.get(name, "data:,") == "data:,", (tag, attributes)
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    assert "url(" not in style
    assert "@import" not in style
    outside = re.sub(r'xmlns="http://www.w3.org/2000/svg"', "", page)
    assert not re.search(r"https?:|//[a-z]", outside)
