"""Report: one HTML page about runs, from their folders alone."""

from fedtaco.report.legend import explain_results
from fedtaco.report.page import write_report
from fedtaco.report.results import paired_differences
from fedtaco.report.run_reader import find_runs

__all__ = ["explain_results", "find_runs", "paired_differences", "write_report"]
