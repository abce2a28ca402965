"""Write the results table as JSON, CSV, Markdown or LaTeX."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedtaco.errors import unknown
from fedtaco.printable import printable
from fedtaco.report.results import CellValue, ResultsTable, build_results

COMMANDS = (
    *(
        r"\&",
        r"\%",
        r"\$",
        r"\#",
        r"\_",
        r"\{",
        r"\}",
        r"\textbackslash{}",
        r"\textasciitilde{}",
        r"\textasciicircum{}",
    ),
    *("$<$", "$>$", "$|$", "--", r"$\pm$", r"$\times$", r"$\circ$", "$+$", "$-$"),
    *(r"$\alpha$", r"$\gamma$", r"$\kappa$", r"$\lambda$"),
)
LATEX = dict(zip("&%$#_{}\\~^<>|–±×○+−αγκλ", COMMANDS, strict=True))
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
    """
    return format_table(build_results(summaries), format)


def format_table(table: ResultsTable, format: str) -> str:  # noqa: A002
    """Return a results table in one of the formats of :func:`format_results`."""
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    return FORMATS[format](table)


def list_values(table: ResultsTable) -> list[dict[str, CellValue]]:
    """Return the unformatted values of a table, one mapping per row."""
    columns = {name: values for column in table.columns for name, values in column.values.items()}
    return [
        {
            "method": row.name,
            "seeds": row.summary.seeds,
            **{name: values[index] for name, values in columns.items()},
        }
        for index, row in enumerate(table.rows)
    ]


def _to_json(table: ResultsTable) -> str:
    return json.dumps(list_values(table), indent=2) + "\n"


def _to_csv(table: ResultsTable) -> str:
    rows, text = list_values(table), io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _to_markdown(table: ResultsTable) -> str:
    header, *body = _lines(table)
    header = [title.translate(MARKDOWN) for title in header]
    body = [[name.translate(MARKDOWN), *cells] for name, *cells in body]
    rule = ["---", *("---:" for _ in header[1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in [header, rule, *body])


def _to_latex(table: ResultsTable) -> str:
    header, *body = _lines(table)
    return latex_tabular(header, body)


def _lines(table: ResultsTable) -> list[list[str]]:
    """Return the header and the rows as formatted text; units are in the header."""
    columns = table.columns
    header = ["method", *(f"{column.title}, {column.unit}".removesuffix(", ") for column in columns)]
    names = [row.name for row in table.rows]
    return [
        [printable(cell) for cell in line] for line in [header, *zip(names, *(c.cells for c in columns), strict=True)]
    ]


def latex_tabular(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as LaTeX that needs the package booktabs; its first column names the rows."""
    head, *body = (" & ".join(map(escape_latex, line)) + r" \\" for line in [header, *rows])
    columns = "l" + "r" * (len(header) - 1)
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


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
    return "{}" + escaped if escaped.startswith(("[", "*")) else escaped  # else \\ before it would take it as an option


FORMATS = {"json": _to_json, "csv": _to_csv, "markdown": _to_markdown, "latex": _to_latex}
