"""Results in notebooks: HTML tables, and pandas data frames."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fedtaco.errors import InvalidInput
from fedtaco.report.table_formats import FormattedTable


def to_html(table: FormattedTable) -> str:
    """Return a table as HTML."""
    header, body = _line("th", table.header), "".join(_line("td", row) for row in table.rows)
    return f"<table><thead>{header}</thead><tbody>{body}</tbody></table>"


def _line(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a pandas data frame with these rows; raise InvalidInput if pandas is not installed."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InvalidInput("A data frame needs pandas: pip install 'fedtaco[pandas]'.") from error
    return pd.DataFrame(list(rows))
