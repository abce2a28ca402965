"""Report: one HTML page about runs, made from their run folders only."""

from fedtaco.report.legend import explain_results
from fedtaco.report.page import check_output_file, write_report
from fedtaco.report.results import paired_differences
from fedtaco.report.run_reader import find_runs

__all__ = ["check_output_file", "explain_results", "find_runs", "paired_differences", "write_report"]
