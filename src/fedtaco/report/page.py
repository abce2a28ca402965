"""The report: one HTML page with everything in it, so that it opens without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from fedtaco.errors import InvalidInput
from fedtaco.records import RunFolder
from fedtaco.records.files import replacing, writing
from fedtaco.report.gather import Data, Tell, gather, quietly
from fedtaco.report.summary import as_percent

LISTED = 200
"""The most detections, and left-out uploads, that are listed one by one."""
UNFOLDED = 12
"""Up to so many of them are in sight at once."""
DRAWN = ("target", "methods", "runs", "partitions")
Row = Sequence[str]


def write_report(folders: Sequence[RunFolder], out: Path, tell: Tell = quietly) -> None:
    """Write the report of some runs of one dataset into the file ``out``."""
    library, version = _plotly()
    page = render(gather(folders, tell), library, version)
    with writing(out), replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render(data: Data, library: str, version: str) -> str:
    """The page of gathered data, with the source of plotly.js in it."""
    parts = {
        "style": _file("page.css"),
        "plotly": library,
        "script": _file("page.js"),
        "data": embedded_json({name: data[name] for name in DRAWN}),
        "title": escape(f"{data['dataset']}: {_counted(len(data['methods']), 'method')}"),
        "dataset": escape(data["dataset"]),
        "summary": _summary(data),
        "methods": "\n".join(_button(place, method["name"]) for place, method in enumerate(data["methods"])),
        "measure": "" if _has_validation(data) else "hidden",
        "finals": escape(_finals(data)),
        "banded": "" if data["seeds"] > 1 else "hidden",
        "timed": "" if data["timed"] else "hidden",
        "untimed": "hidden" if data["timed"] else "",
        "results": _results(data),
        "notes": _list(_notes(data)),
        "detections": _detections(data["detections"]),
        "dropped": _dropped(data["dropped"]),
        "settings": _table(["setting", "value"], [[name, value] for name, value in data["settings"].items()]),
        "own_settings": _own_settings(data["own_settings"]),
        "versions": _table(["made by", "version"], [[name, value] for name, value in data["versions"].items()]),
        "written": escape(f"Page written by fedtaco {metadata.version('fedtaco')} with plotly.js {version}."),
    }
    return re.sub(r"<!--(\w+)-->", lambda place: parts[place[1]], _file("page.html"))


def embedded_json(data: Any) -> str:
    r"""JSON that can stand inside a script element, whatever names it holds.

    >>> embedded_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _plotly() -> tuple[str, str]:
    try:
        from plotly.offline import get_plotlyjs, get_plotlyjs_version
    except ImportError as error:
        raise InvalidInput("Reports need plotly: pip install 'fedtaco[report]'.") from error
    return get_plotlyjs(), get_plotlyjs_version()


def _file(name: str) -> str:
    return resources.files("fedtaco.report").joinpath(name).read_text(encoding="utf-8")


# The top of the page


def _summary(data: Data) -> str:
    counts = [_counted(data["rounds"], "round"), _counted(data["seeds"], "seed")]
    counts += [_counted(data["clients"], "client")] if data["clients"] else []
    counts += [f"partition {data['partition']}"] if data["partition"] else []
    judged = [row for row in data["results"] if row.get("accuracy") is not None]
    best = max(judged, key=lambda row: row["accuracy"], default=None)
    told = f"{escape(', '.join(counts))}."
    if best is None:
        return told
    place = "highest, " if len(data["results"]) > 1 else ""
    return f"<strong>{escape(best['method'])}</strong> ends {place}at {_accuracy(best)} test accuracy. {told}"


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _button(place: int, name: str) -> str:
    return f'<button type="button" class="method" aria-pressed="true" data-method="{place}">{escape(name)}</button>'


def _has_validation(data: Data) -> bool:
    return any("validation_accuracy" in method["curves"] for method in data["methods"])


def _finals(data: Data) -> str:
    """What a line chart says, in words."""
    last = [f"{row['method']} {_accuracy(row)}" for row in data["results"] if row.get("accuracy") is not None]
    return f"Line chart, a line a method; after the last round: {', '.join(last)}."


# Tables


def _results(data: Data) -> str:
    rows = data["results"]
    groups = sorted({group for row in rows for group in row["alpha"]})
    target = "target" if data["target"] is None else as_percent(data["target"])
    timed = any(row.get("client_seconds") is not None for row in rows)
    reference = data["reference"]
    head = ["method", "final accuracy", *([f"difference to {reference}"] if reference else []), "worst tenth"]
    head += [f"rounds to {target}", *(["client seconds"] if timed else []), *(f"α {group}" for group in groups)]
    return _table(head, [_result(row, groups, timed, bool(reference)) for row in rows], keyed=True)


def _result(row: Data, groups: Sequence[str], timed: bool, compared: bool) -> Row:
    seconds, difference = row.get("client_seconds"), row["difference"]
    return [
        f"{row['method']} ({row['status']})" if row["status"] else row["method"],
        _accuracy(row),
        *(["–" if difference is None else str(difference).replace("-", "−")] if compared else []),
        _percent(row.get("worst_tenth_accuracy")),
        row.get("rounds_to_target", "–"),
        *(["–" if seconds is None else f"{seconds:.2f}"] if timed else []),
        *(f"{row['alpha'][group]:.2f}" if group in row["alpha"] else "–" for group in groups),
    ]


def _accuracy(row: Data) -> str:
    spread = row.get("accuracy_deviation")
    return _percent(row.get("accuracy"), "" if spread is None else f" ± {100 * spread:.1f}")


def _percent(value: float | None, spread: str = "") -> str:
    return "–" if value is None else f"{100 * value:.1f}{spread} %"


def _notes(data: Data) -> list[str]:
    marks = {row.get("rounds_to_target", "–") for row in data["results"]}
    over_seeds = ", mean ± deviation over seeds" if data["seeds"] > 1 else ""
    said = {
        f"Final accuracy: on the test set after the last round{over_seeds}.": True,
        f"Difference to {data['reference']}: final accuracy less that method's, in percentage points, over the "
        "finished seeds that both have; in brackets the 95 % confidence interval of its mean.": data["reference"]
        is not None,
        "Worst tenth: the mean over the tenth of the clients with the lowest accuracy, each by its own mix of "
        "labels.": True,
        "N+: the target was not reached in N rounds.": any(mark.endswith("+") for mark in marks),
        "×: a run diverged, or ended below nine tenths of the target.": "×" in marks,
        "Client seconds: those of each round's slowest client, summed up.": data["timed"],
        "α: TACO's coefficient, mean over clients and rounds; the larger, the more an upload is in line with the "
        "others.": True,
        "A, B, C: groups of clients, from one-sided labels (A) to even ones (C).": data["partition"] == "groups",
    }
    outputs = [
        f"{row['method']}'s own output z: {_percent(row['output_accuracy'])}."
        for row in data["results"]
        if row.get("output_accuracy") is not None
    ]
    return [*(note for note, holds in said.items() if holds), *outputs, *data["notes"]]


def _own_settings(rows: Sequence[Mapping[str, str]]) -> str:
    head = ["method", "seeds", "own settings", "engine", "state"]
    names = ["method", "seeds", "settings", "engine", "status"]
    return _table(head, [[row[name] or "–" for name in names] for row in rows])


def _table(head: Row, rows: Sequence[Row], *, keyed: bool = False) -> str:
    """A table whose first column names its rows; ``keyed`` rows are those of the methods, in order."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = [f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
    for place, (first, *others) in enumerate(rows):
        key = f' data-method="{place}"' if keyed else ""
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in others)
        lines.append(f'<tr{key}><th scope="row">{escape(first)}</th>{cells}</tr>')
    return "\n".join(["<table>", *lines, "</tbody></table>"])


# Events


def _detections(events: Sequence[Data]) -> str:
    def sentence(event: Data) -> str:
        kind = {True: " A freeloader.", False: " Not a freeloader.", None: ""}[event["freeloader"]]
        return f"Client {event['client']}, after round {event['round']}: {event['reason']}.{kind}"

    return _by_run(events, "client expelled", sentence) or "<p>No client was expelled.</p>"


def _dropped(events: Sequence[Data]) -> str:
    def sentence(event: Data) -> str:
        return f"Client {event['client']}, {_rounds(event['rounds'])}: {event['reason']}."

    return _by_run(events, "client with uploads left out", sentence) or "<p>No upload was left out.</p>"


def _by_run(events: Sequence[Data], thing: str, sentence: Callable[[Data], str]) -> str:
    """Events run by run, unfolded where they are few."""
    runs: dict[str, list[Data]] = {}
    for event in events:
        runs.setdefault(f"{event['method']}, {event['run']}", []).append(event)
    unfolded = " open" if len(events) <= UNFOLDED else ""
    noun, _, rest = thing.partition(" ")
    return "\n".join(
        f"<details{unfolded}><summary>{escape(f'{run}: {_counted(len(own), noun)} {rest}')}</summary>\n"
        f"{_list([sentence(event) for event in own])}</details>"
        for run, own in runs.items()
    )


def _rounds(rounds: Sequence[int]) -> str:
    listed = ", ".join(map(str, rounds[:8]))
    more = f" and {len(rounds) - 8} more" if len(rounds) > 8 else ""
    return f"round{'' if len(rounds) == 1 else 's'} {listed}{more}"


def _list(sentences: Sequence[str]) -> str:
    more = [f"And {len(sentences) - LISTED:,} more."] if len(sentences) > LISTED else []
    items = "".join(f"<li>{escape(sentence)}</li>\n" for sentence in [*sentences[:LISTED], *more])
    return f"<ul>\n{items}</ul>"
