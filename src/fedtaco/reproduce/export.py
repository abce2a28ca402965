"""Write a reproduction as CSV, LaTeX and figures."""

from pathlib import Path

from fedtaco.report.table_formats import escape_latex, format_table, latex_tabular
from fedtaco.reproduce.figures import draw_figure
from fedtaco.reproduce.results import Reproduction
from fedtaco.reproduce.tables import build_table


def export(reproduction: Reproduction, folder: Path) -> list[Path]:
    """Write the table and the figure of a reproduction to a folder.

    Returns
    -------
    list of Path
        A CSV file with unformatted numbers (for ``alpha`` and ``thresholds``, with the formatted table), a LaTeX file
        that needs the package booktabs, an SVG and a PNG file, named after the reproduction.
    """
    stem, table = folder / reproduction.name, build_table(reproduction)
    numbers, latex = stem.with_suffix(".csv"), stem.with_suffix(".tex")
    numbers.write_text(format_table(table, "csv"), encoding="utf-8")
    caption, tabular = escape_latex(reproduction.caption), latex_tabular(table.header, table.rows)
    latex.write_text(f"\\begin{{table}}\n\\caption{{{caption}}}\n{tabular}\\end{{table}}\n", encoding="utf-8")
    return [numbers, latex, *draw_figure(reproduction, stem)]
