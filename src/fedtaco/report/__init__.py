"""Report: tables, figures and a page from histories and run folders."""

from fedtaco.report.detection import Rates, threshold_rates
from fedtaco.report.export import export, grid_of
from fedtaco.report.labels import label_counts
from fedtaco.report.paired import Difference, paired_differences
from fedtaco.report.reproduction import Cell, Reproduction
from fedtaco.report.summary import Comparison, as_percent, compare_runs, summarize

__all__ = [
    "Cell",
    "Comparison",
    "Difference",
    "Rates",
    "Reproduction",
    "as_percent",
    "compare_runs",
    "export",
    "grid_of",
    "label_counts",
    "paired_differences",
    "summarize",
    "threshold_rates",
]
