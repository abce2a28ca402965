"""Report: tables, figures and one HTML page about runs, made from their records only."""

from fedtaco.report.differences import paired_differences
from fedtaco.report.legend import explain_results
from fedtaco.report.output import write_report
from fedtaco.report.output_files import PLOT_SUFFIXES, check_output_file
from fedtaco.report.plots import plot_accuracy
from fedtaco.report.run_reader import find_runs
from fedtaco.report.table_formats import format_results

__all__ = [
    "PLOT_SUFFIXES",
    "check_output_file",
    "explain_results",
    "find_runs",
    "format_results",
    "paired_differences",
    "plot_accuracy",
    "write_report",
]
