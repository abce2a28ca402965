"""Helpers to read a rendered page."""

from __future__ import annotations

from html.parser import HTMLParser

from fedtaco.report.page import render
from fedtaco.report.page_data import build_page_data

PLOTLY = "window.Plotly = {};"


def page_of(folders):
    return render(build_page_data(folders), PLOTLY, "1.0")


def text_of(page):
    """Return the visible text of a page, without scripts and tags."""

    class Reader(HTMLParser):
        def __init__(self):
            super().__init__()
            self.parts, self.skipping = [], False

        def handle_starttag(self, tag, attrs):
            self.skipping = tag in ("script", "style")

        def handle_endtag(self, tag):
            self.skipping = False

        def handle_data(self, data):
            if not self.skipping:
                self.parts.append(data)

    reader = Reader()
    reader.feed(page)
    return " ".join(" ".join(reader.parts).split())
