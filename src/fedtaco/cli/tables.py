"""Print the results of a comparison as a table in the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedtaco.cli.console import print_with_notes
from fedtaco.printable import printable
from fedtaco.report import explain_results
from fedtaco.report.results import SPARE, ResultColumn, build_results


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
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False)
    table.add_column("\nmethod", no_wrap=True)
    for column in columns:
        table.add_column(printable(column.title).replace(" ", "\n", 1), justify="right", no_wrap=True)
    names = [printable(method.method) for method in methods]
    for cells in zip(names, *(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    rounds = max(summary["rounds"] for summary in summaries)
    notes = [note for summary in summaries for note in summary["partition_notes"]]
    legend = explain_results(methods, rounds=rounds, reference=results.reference, partition_notes=notes)
    print_with_notes(table, results.headline, legend)


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
