"""Report: tables from histories and run folders."""

from fedtaco.report.summary import Comparison, compare_runs, summarize

__all__ = ["Comparison", "compare_runs", "summarize"]
