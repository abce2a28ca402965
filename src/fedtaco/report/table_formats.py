"""Tables as JSON, CSV, Markdown, LaTeX, HTML and pandas data frames."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from fedtaco.errors import InvalidInput, unknown
from fedtaco.printable import printable
from fedtaco.report.results import CellValue, ResultsTable, build_results

COMMANDS = (
    r"\& \% \$ \# \_ \{ \} \textbackslash{} \textasciitilde{} \textasciicircum{} $<$ $>$ $|$ -- "
    r"$\pm$ $\times$ $\circ$ $\downarrow$ $\updownarrow$ $\leq$ $+$ $-$ $\alpha$ $\gamma$ $\kappa$ $\lambda$"
)
LATEX = dict(zip("&%$#_{}\\~^<>|–±×○↓↕≤+−αγκλ", COMMANDS.split(), strict=True))
"""LaTeX commands for special characters."""
MARKDOWN = str.maketrans({mark: rf"\{mark}" for mark in r"\|*_`<[]"})
"""Characters of names that Markdown would interpret."""


def format_results(summaries: Sequence[Mapping[str, Any]], format: str) -> str:  # noqa: A002
    """Return the results of runs as a table, with one row per method.

    Parameters
    ----------
    summaries
        Summaries of runs that have ended, at least one.
    format
        ``json`` (a list of objects) or ``csv``, both with unformatted numbers; ``markdown``, or ``latex``, which needs
        the package booktabs.

    Returns
    -------
    str
        The table, ending with a line break.

    Raises
    ------
    InvalidInput
        If there is no such format.

    Examples
    --------
    >>> from fedtaco.records import History, PartitionRecord, RoundRecord
    >>> from fedtaco.records.summary import summarize
    >>> history = History([RoundRecord(1, 0.7, 0.9, None, 1.0), RoundRecord(2, 0.9, 0.3, None, 1.0)])
    >>> figures = summarize(history, target=0.8, partition=PartitionRecord.unknown(clients=10))
    >>> print(format_results([{"method": "taco", "seed": 0, "stopped": None, **figures}], "markdown"), end="")
    | method | final accuracy, % | worst tenth, % | rounds to 80% |
    | --- | ---: | ---: | ---: |
    | taco | 90.0 | – | 2 |
    """
    return format_table(results_table(build_results(summaries)), format)


@dataclass(frozen=True)
class FormattedTable:
    """A table both as formatted text and as numbers, without control characters."""

    header: list[str]
    rows: list[list[str]]
    """Formatted cells; the first column names the rows."""
    records: list[dict[str, CellValue]]
    """The numbers of each row, by name; accuracies are fractions."""

    def to_html(self) -> str:
        """Return the formatted table as HTML."""
        return html_table(self.header, self.rows)


def results_table(results: ResultsTable) -> FormattedTable:
    """Return results as a table; units are in the header."""
    columns, rows = results.columns, results.rows
    header = ["method", *(printable(f"{column.title}, {column.unit}".removesuffix(", ")) for column in columns)]
    lines = zip([printable(row.name) for row in rows], *(column.cells for column in columns), strict=True)
    values: dict[str, Sequence[CellValue]] = {
        "method": [printable(row.summary.method) for row in rows],
        **({"status": [row.status for row in rows]} if any(row.status for row in rows) else {}),
        "seeds": [row.summary.seeds for row in rows],
        **{printable(name): own for column in columns for name, own in column.values.items()},
    }
    records = [dict(zip(values, cells, strict=True)) for cells in zip(*values.values(), strict=True)]
    return FormattedTable(header, [list(line) for line in lines], records)


def format_table(table: FormattedTable, format: str) -> str:  # noqa: A002
    """Return a table in one of the formats of :func:`format_results`."""
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    return FORMATS[format](table)


def _to_json(table: FormattedTable) -> str:
    return json.dumps(table.records, indent=2) + "\n"


def _to_csv(table: FormattedTable) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table.records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.records)
    return text.getvalue()


def _to_markdown(table: FormattedTable) -> str:
    header = [title.translate(MARKDOWN) for title in table.header]
    body = [[name.translate(MARKDOWN), *cells] for name, *cells in table.rows]
    rule = ["---", *("---:" for _ in header[1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in [header, rule, *body])


def _to_latex(table: FormattedTable) -> str:
    return "% This table needs the package booktabs.\n" + latex_tabular(table.header, table.rows)


def latex_tabular(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as LaTeX that needs the package booktabs; its first column names the rows."""
    head, *body = (" & ".join(map(escape_latex, line)) + r" \\" for line in [header, *rows])
    begin, end = rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\end{tabular}"
    return "\n".join([begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", end]) + "\n"


def escape_latex(text: str) -> str:
    r"""Return text as LaTeX, with signs and signed numbers in mathematics.

    >>> escape_latex("fed_avg: 84.7 ± 1.2 %, −0.5, 20+")
    'fed\\_avg: 84.7 $\\pm$ 1.2 \\%, $-0.5$, 20$+$'
    """
    escaped = re.sub(
        r"(?<![\w.])[+−]\d+(?:\.\d+)?|.",
        lambda part: LATEX.get(part[0], part[0]) if len(part[0]) == 1 else f"${part[0].replace('−', '-')}$",
        text,
        flags=re.DOTALL,
    )
    escaped = re.sub(r"(?<!\\)\$\$", "", escaped)  # one formula instead of two
    return "{}" + escaped if escaped.startswith(("[", "*")) else escaped  # else \\ before it would take it as an option


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, keys: Sequence[int] = ()) -> str:
    """Return an HTML table whose first column names the rows; ``keys`` are the methods whose colours rows have."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = [f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
    for index, (first, *others) in enumerate(rows):
        key = f' data-method="{keys[index]}"' if keys else ""
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in others)
        lines.append(f'<tr{key}><th scope="row">{escape(first)}</th>{cells}</tr>')
    return "\n".join(["<table>", *lines, "</tbody></table>"])


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a pandas data frame with these rows; raise InvalidInput if pandas is not installed."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InvalidInput("A data frame needs pandas: pip install 'fedtaco[pandas]'.") from error
    return pd.DataFrame(list(rows))


FORMATS = {"json": _to_json, "csv": _to_csv, "markdown": _to_markdown, "latex": _to_latex}
