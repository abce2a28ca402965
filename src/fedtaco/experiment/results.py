"""Results of several runs: tables and figures of comparisons and sweeps."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtaco.errors import InvalidInput
from fedtaco.experiment.sweep import TunedMethod
from fedtaco.experiment.sweep_table import build_sweep_table, trial_name
from fedtaco.records import History, RunFolder
from fedtaco.records.formatting import pluralize
from fedtaco.records.method_summary import MethodSummary, summarize_methods
from fedtaco.report.results import build_results
from fedtaco.report.run_reader import find_runs, list_settings
from fedtaco.report.runs_by_method import group_runs
from fedtaco.report.table_formats import FormattedTable, data_frame, format_table, results_table

Summary = dict[str, Any]
"""The summary of a run, as ``summary.json`` contains it, with its ``folder``."""


@dataclass(frozen=True, repr=False)
class SeveralRuns(ABC):
    """Base of comparisons and sweeps: runs that have ended, in one folder."""

    folder: Path
    """The folder that contains the run folders."""
    runs: list[Summary]
    """The summary of each run."""

    @abstractmethod
    def table(self) -> FormattedTable:
        """Return the results as a table."""

    @abstractmethod
    def _drawn(self) -> Mapping[str, Sequence[Summary]]:
        """Return the runs that a figure shows, by the name of their curve."""

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per run; raise InvalidInput if pandas is not installed."""
        plain = (int, float, str, type(None))
        return data_frame([{name: one for name, one in run.items() if isinstance(one, plain)} for run in self.runs])

    def to_csv(self) -> str:
        """Return the table as CSV, with unformatted numbers."""
        return format_table(self.table(), "csv")

    def to_markdown(self) -> str:
        """Return the table as Markdown."""
        return format_table(self.table(), "markdown")

    def to_latex(self) -> str:
        """Return the table as LaTeX, which needs the package booktabs."""
        return format_table(self.table(), "latex")

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the test accuracy over rounds, mean and range over seeds; of a sweep, those of the best settings.

        Parameters
        ----------
        path
            PDF, PNG or SVG file to write; ``None`` writes nothing.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        InvalidInput
            If matplotlib is not installed, or the file cannot be written.
        """
        from fedtaco.report.plots import plot_accuracy

        histories = {
            name: [History(RunFolder(run["folder"]).rounds()) for run in own] for name, own in self._drawn().items()
        }
        targets = {run["target"] for run in self.runs}
        return plot_accuracy(histories, path, targets.pop() if len(targets) == 1 else None)

    def __repr__(self) -> str:
        return f"{pluralize(len(self.runs), 'run')} in {self.folder}\n\n{self.to_markdown()}"

    def _repr_html_(self) -> str:
        return self.table().to_html()


@dataclass(frozen=True, repr=False)
class Comparison(SeveralRuns):
    """What :func:`fedtaco.compare` and :func:`fedtaco.load_runs` return: one row per method in tables."""

    @property
    def methods(self) -> list[MethodSummary]:
        """The figures of each method, means over its seeds."""
        return summarize_methods(self.runs)

    def table(self) -> FormattedTable:
        return results_table(build_results(self.runs))

    def _drawn(self) -> Mapping[str, Sequence[Summary]]:
        by_method: dict[str, list[Summary]] = {}
        for run in self.runs:
            by_method.setdefault(run["method"], []).append(run)
        return by_method


@dataclass(frozen=True, repr=False)
class Sweep(SeveralRuns):
    """What :func:`fedtaco.sweep` returns: one row per setting that was tried in tables."""

    methods: list[TunedMethod]
    """All trials of each method; ``methods[0].best`` are its best settings."""

    def table(self) -> FormattedTable:
        return build_sweep_table(self.methods)

    def _drawn(self) -> Mapping[str, Sequence[Summary]]:
        best = [(tuned.method, trial) for tuned in self.methods for trial in tuned.best]
        return {trial_name(method, trial): trial.summaries for method, trial in best}


def load_runs(path: str | Path) -> Comparison:
    """Read all runs that have ended in a folder, at any depth, such as those of a comparison.

    Parameters
    ----------
    path
        The folder.

    Returns
    -------
    Comparison
        The runs. Those of one method with different settings are named by these, as in ``taco (gamma=0.02)``.

    Raises
    ------
    InvalidInput
        If the folder contains no run that has ended, or one that is damaged.

    Warns
    -----
    UserWarning
        If some runs have not ended; they are left out.

    Examples
    --------
    >>> load_runs("runs/digits").to_latex()  # doctest: +SKIP
    """
    found = [(folder, folder.config(), folder.summary()) for folder in find_runs(Path(path))]
    ended = [(folder, config, summary) for folder, config, summary in found if summary is not None]
    if not ended:
        raise InvalidInput(f"No run in {path} has ended; continue one (resume).")
    if len(ended) < len(found):
        warnings.warn(f"{len(found) - len(ended)} of {len(found)} runs in {path} have not ended.", stacklevel=2)
    groups = group_runs([run["method"] for _, _, run in ended], [list_settings(config) for _, config, _ in ended])
    runs = [
        {"folder": str(ended[index][0].path), **ended[index][2], "method": name}
        for name, indices in groups.items()
        for index in indices
    ]
    return Comparison(Path(path), runs)
