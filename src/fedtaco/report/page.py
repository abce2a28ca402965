"""The HTML page of a report: self-contained, so that it opens without a network."""

import json
import re
from collections.abc import Sequence
from html import escape
from importlib import metadata, resources
from typing import Any

from fedtaco.errors import InvalidInput
from fedtaco.records.formatting import format_mean, pluralize
from fedtaco.records.method_summary import MethodSummary
from fedtaco.report.events import Event
from fedtaco.report.own_samples import HEAD
from fedtaco.report.page_data import PageData
from fedtaco.report.table_formats import html_table

LISTED = 200
"""Maximum number of expulsions or dropped uploads listed for a run."""
UNFOLDED = 12
"""Maximum number of expulsions or dropped uploads that are shown unfolded."""
SCRIPTS = ("page_theme.js", "page_curves.js", "page_histogram.js", "page_heatmaps.js", "page.js")
"""The parts of the page's script, in order."""


def render(data: PageData, library: str, version: str) -> str:
    """Return the HTML of a report; ``library`` is the source code of plotly.js, ``version`` its version."""
    parts = {
        "style": _read_asset("page.css"),
        "plotly": library,
        "script": "\n".join(map(_read_asset, SCRIPTS)),
        "data": embedded_json(data.script),
        "title": escape(f"{data.dataset}: {pluralize(len(data.script['methods']), 'method')}"),
        "dataset": escape(data.dataset),
        "headline": escape(" ".join(data.results.headline)),
        "facts": escape(_facts(data)),
        "methods": "\n".join(_button(index, method["name"]) for index, method in enumerate(data.script["methods"])),
        "several": "" if len(data.script["methods"]) > 1 else "hidden",
        "finals": escape(_final_accuracies(data)),
        "banded": "" if data.seeds > 1 else "hidden",
        "untimed": "hidden" if data.is_timed else "",
        "results": _results(data),
        "legend": _list(data.legend),
        "unstable": "" if data.stability else "hidden",
        "stability": _list(data.stability),
        "own_hidden": "" if data.own_rows else "hidden",
        "histograms_hidden": "" if data.script["histograms"] else "hidden",
        "own_note": escape(_own_note(data)),
        "own_rows": html_table(HEAD, [row for _, row in data.own_rows], keys=[index for index, _ in data.own_rows]),
        "expulsions": _list_events(data.expulsions, "expelled") or "<p>No client was expelled.</p>",
        "dropped": _list_events(data.dropped, "with dropped uploads") or "<p>No upload was dropped.</p>",
        "settings": html_table(["setting", "value"], [[name, value] for name, value in data.settings.items()]),
        "own_settings": html_table(list(data.own_settings[0]), [list(row.values()) for row in data.own_settings]),
        "versions": html_table(["software", "version"], [[name, value] for name, value in data.versions.items()]),
        "written": escape(f"Page written by fedtaco {metadata.version('fedtaco')} with plotly.js {version}."),
    }
    return re.sub(r"<!--(\w+)-->", lambda place: parts[place[1]], _read_asset("page.html"))


def embedded_json(data: Any) -> str:
    r"""Return JSON that cannot end the script element around it, whatever names it contains.

    >>> embedded_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def read_plotly() -> tuple[str, str]:
    """Return the source code of plotly.js and its version; raise InvalidInput if plotly is not installed."""
    try:
        from plotly.offline import get_plotlyjs, get_plotlyjs_version
    except ImportError as error:
        raise InvalidInput("Reports need plotly: pip install 'fedtaco[report]'.") from error
    return get_plotlyjs(), get_plotlyjs_version()


def _read_asset(name: str) -> str:
    return resources.files("fedtaco.report").joinpath(name).read_text(encoding="utf-8")


# The top of the page


def _facts(data: PageData) -> str:
    facts = [pluralize(data.rounds, "round"), pluralize(data.seeds, "seed")]
    facts += [pluralize(int(data.settings["clients"]), "client")] if "clients" in data.settings else []
    facts += [f"partition {data.settings['partition']}"] if "partition" in data.settings else []
    return ", ".join(facts)


def _tested(data: PageData) -> list[MethodSummary]:
    return [row.summary for row in data.results.rows if row.summary.accuracy is not None]


def _accuracy(row: MethodSummary) -> str:
    return f"{format_mean(row.accuracy, row.accuracy_deviation, scale=100)} %"


def _button(index: int, name: str) -> str:
    return f'<button type="button" class="method" aria-pressed="true" data-method="{index}">{escape(name)}</button>'


def _final_accuracies(data: PageData) -> str:
    """Return a description of the line charts for screen readers."""
    last = [f"{row.method} {_accuracy(row)}" for row in _tested(data)]
    return f"After the last round: {', '.join(last)}" if last else "No results yet"


# Tables


def _results(data: PageData) -> str:
    names, columns = [row.name for row in data.results.rows], data.results.columns
    cells = [[cell if cell == "–" else f"{cell} {column.unit}".strip() for cell in column.cells] for column in columns]
    head = ["method", *(column.title for column in columns)]
    return html_table(head, list(zip(names, *cells, strict=True)), keys=range(len(names)))


def _own_note(data: PageData) -> str:
    """Return what the histogram and the table of clients' own samples show."""
    sentences = ["The final model, evaluated on each client's own samples, on which it was not trained."]
    if any(len(one["models"]) > 1 for one in data.script["histograms"]):
        steps = data.settings.get("fine_tune_steps", "some")
        sentences.append(f"Fine-tuned: a copy trained for {steps} steps of SGD on the client's training samples.")
    if data.seeds > 1:
        sentences.append("Bars: the clients of all seeds.")
    return " ".join(sentences)


# Lists


def _list_events(events: Sequence[Event], what: str) -> str:
    """Return an HTML list of the events of each run, unfolded if there are few."""
    runs: dict[str, list[Event]] = {}
    for event in events:
        runs.setdefault(event.run, []).append(event)
    unfolded = " open" if len(events) <= UNFOLDED else ""
    lines = []
    for run, own in runs.items():
        clients = pluralize(len({event.client for event in own}), "client")
        lines.append(f"<details{unfolded}><summary>{escape(f'{run}: {clients} {what}')}</summary>")
        lines.append(f"{_list([event.text for event in own])}</details>")
    return "\n".join(lines)


def _list(sentences: Sequence[str]) -> str:
    more = [f"And {len(sentences) - LISTED:,} more."] if len(sentences) > LISTED else []
    items = "".join(f"<li>{escape(sentence)}</li>\n" for sentence in [*sentences[:LISTED], *more])
    return f"<ul>\n{items}</ul>"
