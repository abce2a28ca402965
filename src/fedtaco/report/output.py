"""Write a report as a page, a table or a figure; the suffix of the file decides."""

from collections.abc import Sequence
from pathlib import Path

from fedtaco.files import replacing, writing
from fedtaco.records import RunFolder
from fedtaco.report.labels import figure_class
from fedtaco.report.output_files import PLOT_SUFFIXES, check_output_file
from fedtaco.report.page import read_plotly, render
from fedtaco.report.page_data import build_page_data
from fedtaco.report.plots import plot_accuracy
from fedtaco.report.results import build_run_results
from fedtaco.report.run_reader import ReportProgress, read_runs
from fedtaco.report.runs_by_method import group_by_method
from fedtaco.report.table_formats import format_table, results_table

TABLE_FORMATS = {".csv": "csv", ".json": "json", ".md": "markdown", ".tex": "latex"}
SUFFIXES = (".html", *TABLE_FORMATS, *PLOT_SUFFIXES)


def write_report(folders: Sequence[RunFolder], out: Path, on_progress: ReportProgress = lambda *_: None) -> None:
    """Write a report on runs to a file.

    Parameters
    ----------
    folders
        Runs of one dataset, finished or not.
    out
        File to write: an HTML page (``.html``), the results table (``.csv``, ``.json``, ``.md``, ``.tex``), or a figure
        of accuracy over rounds (``.pdf``, ``.png``, ``.svg``). An existing file is replaced, unless it is a link or a
        special file.
    on_progress
        Called with the number of rounds read so far and the total number of rounds.

    Raises
    ------
    InvalidInput
        If plotly or matplotlib is missing, a run cannot be read, runs are of several datasets, or the file has another
        suffix or cannot be written.
    """
    check_output_file(out, SUFFIXES)
    if out.suffix in PLOT_SUFFIXES:
        figure_class()  # raises InvalidInput now, before anything is read, if matplotlib is missing
        methods = group_by_method(read_runs(folders, on_progress))
        histories = {method.name: [run.history for run in method.runs] for method in methods}
        plot_accuracy(histories, out, build_run_results(methods).target)
        return
    if out.suffix == ".html":
        library = read_plotly()
        text = render(build_page_data(folders, on_progress), *library)
    else:
        results = build_run_results(group_by_method(read_runs(folders, on_progress)))
        text = format_table(results_table(results), TABLE_FORMATS[out.suffix])
    with writing(out), replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
