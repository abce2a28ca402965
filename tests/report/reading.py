"""A page as it is read."""

from __future__ import annotations

from html.parser import HTMLParser

from fedtaco.report.gather import gather
from fedtaco.report.page import render

PLOTLY = "window.Plotly = {};"


def page_of(folders):
    return render(gather(folders), PLOTLY, "1.0")


def text_of(page):
    """The page as it is read: no scripts, no tags."""

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
