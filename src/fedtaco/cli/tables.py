"""Print the results of a comparison as a table in the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedtaco.cli.console import fits, print_with_notes
from fedtaco.printable import printable
from fedtaco.report import explain_results
from fedtaco.report.results import SPARE, TRAFFIC, ResultColumn, build_results


def print_comparison(summaries: Sequence[Mapping[str, Any]]) -> None:
    """Print a table with one row per method, and below it what the columns mean and what happened in the runs.

    Parameters
    ----------
    summaries
        Summaries of runs that have ended.
    """
    results = build_results(summaries)
    methods = [row.summary for row in results.rows]
    columns = _join_alphas([column for column in results.columns if column.title not in SPARE])
    names = [printable(method.method) for method in methods]
    table, left_out = _table(names, columns), []
    if not fits(_table(names, columns, padding=0)):
        table = _table(names, [column for column in columns if column.title not in TRAFFIC])
        left_out = _traffic_sentences(names, [column for column in columns if column.title in TRAFFIC])
    rounds = max(summary["rounds"] for summary in summaries)
    notes = [note for summary in summaries for note in summary["partition_notes"]]
    legend = explain_results(methods, rounds=rounds, reference=results.reference, partition_notes=notes)
    print_with_notes(table, results.headline, [*legend, *left_out])


def _table(names: Sequence[str], columns: Sequence[ResultColumn], padding: int = 1) -> Table:
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False, padding=(0, padding))
    table.add_column("\nmethod", no_wrap=True)
    for column in columns:
        table.add_column(printable(column.title).replace(" ", "\n", 1), justify="right", no_wrap=True)
    for cells in zip(names, *(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def _traffic_sentences(names: Sequence[str], columns: Sequence[ResultColumn]) -> list[str]:
    """Return a sentence per column of megabytes for which the terminal has no room."""
    lines = [", ".join(f"{name} {cell}" for name, cell in zip(names, one.cells, strict=True)) for one in columns]
    return [f"{column.title}: {line}." for column, line in zip(columns, lines, strict=True)]


def _join_alphas(columns: Sequence[ResultColumn]) -> list[ResultColumn]:
    """Join the columns of α into one, to make the table narrower."""
    others = [column for column in columns if not column.title.startswith("α")]
    alphas = [column for column in columns if column.title.startswith("α")]
    if not alphas:
        return others
    groups = [column.title.removeprefix("α ") for column in alphas]
    lines = zip(*(column.cells for column in alphas), strict=True)
    names, *cells = _align([groups, *([cell.lstrip("0") for cell in line] for line in lines)])
    return [*others, ResultColumn("α" if groups == ["all"] else f"α {names}", cells, {})]


def _align(lines: Sequence[Sequence[str]]) -> list[str]:
    """Join the words of each line so that they form right-aligned columns.

    >>> _align([["A", "rest"], [".23", ".9"]])
    ['  A rest', '.23   .9']
    """
    widths = [max(map(len, words)) for words in zip(*lines, strict=True)]
    return [" ".join(word.rjust(width) for word, width in zip(line, widths, strict=True)) for line in lines]
