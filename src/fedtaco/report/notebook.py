"""Results in notebooks: HTML tables, and pandas data frames."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fedtaco.errors import InvalidInput
from fedtaco.printable import printable
from fedtaco.report.results import build_results


def results_html(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Return the results of runs that have ended as an HTML table, with one row per method."""
    results = build_results(summaries)
    header = ["method", *(f"{column.title}, {column.unit}".removesuffix(", ") for column in results.columns)]
    names = [row.name for row in results.rows]
    body = [_line("td", cells) for cells in zip(names, *(column.cells for column in results.columns), strict=True)]
    return f"<table><thead>{_line('th', header)}</thead><tbody>{''.join(body)}</tbody></table>"


def _line(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(printable(cell))}</{tag}>" for cell in cells) + "</tr>"


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a pandas data frame with these rows; raise InvalidInput if pandas is not installed."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InvalidInput("A data frame needs pandas: pip install pandas.") from error
    return pd.DataFrame(list(rows))
