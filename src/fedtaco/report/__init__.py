"""Report: one HTML page about runs, from their folders alone."""

from fedtaco.report.differences import Difference, paired_differences
from fedtaco.report.legend import explain_results
from fedtaco.report.page import write_report
from fedtaco.report.page_data import build_page_data
from fedtaco.report.run_reader import find_runs

__all__ = [
    "Difference",
    "build_page_data",
    "explain_results",
    "find_runs",
    "paired_differences",
    "write_report",
]
