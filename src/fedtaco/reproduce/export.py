"""Write a reproduction as CSV, LaTeX and figures."""

import csv
from pathlib import Path

from fedtaco.report.table_formats import escape_latex, latex_tabular
from fedtaco.reproduce.figures import draw_figure
from fedtaco.reproduce.results import CellResult, Reproduction
from fedtaco.reproduce.tables import build_table


def export(reproduction: Reproduction, folder: Path) -> list[Path]:
    """Write the table and the figure of a reproduction to a folder.

    Returns
    -------
    list of Path
        A CSV, a LaTeX, an SVG and a PNG file, named after the reproduction.
    """
    stem = folder / reproduction.name
    write_csv(reproduction, stem.with_suffix(".csv"))
    write_latex(reproduction, stem.with_suffix(".tex"))
    return [stem.with_suffix(".csv"), stem.with_suffix(".tex"), *draw_figure(reproduction, stem)]


def write_csv(reproduction: Reproduction, path: Path) -> None:
    """Write one row per cell, with unformatted numbers; for ``alpha`` and ``thresholds``, the formatted table."""
    if reproduction.shows in ("alpha", "thresholds"):
        table = build_table(reproduction)
        rows: list[dict[str, object]] = [dict(zip(table.headers, row, strict=True)) for row in table.rows]
    else:
        rows = [_numbers(cell) for cell in reproduction.cells]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _numbers(cell: CellResult) -> dict[str, object]:
    ours = cell.ours
    return {
        "panel": cell.panel,
        "variant": cell.variant,
        "seeds": len(cell.summaries),
        "accuracy": ours and ours.accuracy,
        "deviation": ours and ours.accuracy_deviation,
        "rounds_to_target": ours and ours.paper_mark,
        "round_seconds": cell.seconds,
        "seconds_to_target": cell.seconds_to_target,
        "paper": cell.paper,
    }


def write_latex(reproduction: Reproduction, path: Path) -> None:
    """Write the table as LaTeX that needs the booktabs package."""
    table = build_table(reproduction)
    caption, tabular = escape_latex(reproduction.caption), latex_tabular(table.headers, table.rows)
    path.write_text(f"\\begin{{table}}\n\\caption{{{caption}}}\n{tabular}\\end{{table}}\n", encoding="utf-8")
