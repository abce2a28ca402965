"""Results of several runs: tables and figures of comparisons and sweeps."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtaco.errors import InvalidInput
from fedtaco.experiment.sweep import TunedMethod
from fedtaco.records import History, RunFolder
from fedtaco.records.summary import MethodSummary, summarize_methods
from fedtaco.report.notebook import data_frame, results_html
from fedtaco.report.run_reader import find_runs, list_settings
from fedtaco.report.runs_by_method import name_groups
from fedtaco.report.table_formats import format_results


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs of several methods that have ended, as :func:`fedtaco.compare` and :func:`fedtaco.load_runs` return them."""

    folder: Path
    """The folder that contains the run folders."""
    runs: list[dict[str, Any]]
    """The summary of each run, with its ``folder``."""

    @property
    def methods(self) -> list[MethodSummary]:
        """Means over the seeds of each method."""
        return summarize_methods(self.runs)

    def histories(self) -> dict[str, list[History]]:
        """Read the rounds of all runs, by method; without records of clients."""
        read: dict[str, list[History]] = {}
        for run in self.runs:
            read.setdefault(run["method"], []).append(History(RunFolder(run["folder"]).rounds()))
        return read

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per run; raise InvalidInput if pandas is not installed."""
        plain = (int, float, str, type(None))
        return data_frame([{name: one for name, one in run.items() if isinstance(one, plain)} for run in self.runs])

    def to_csv(self) -> str:
        """Return the results as CSV, with one row per method and unformatted numbers."""
        return format_results(self.runs, "csv")

    def to_markdown(self) -> str:
        """Return the results as a Markdown table, with one row per method."""
        return format_results(self.runs, "markdown")

    def to_latex(self) -> str:
        """Return the results as a LaTeX table, which needs the package booktabs."""
        return format_results(self.runs, "latex")

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the test accuracy over rounds, mean and range over seeds.

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

        targets = {run["target"] for run in self.runs}
        return plot_accuracy(self.histories(), path, targets.pop() if len(targets) == 1 else None)

    def __repr__(self) -> str:
        return f"{len(self.runs)} runs in {self.folder}\n\n{self.to_markdown()}"

    def _repr_html_(self) -> str:
        return results_html(self.runs)


@dataclass(frozen=True, repr=False)
class Sweep:
    """What :func:`fedtaco.sweep` returns."""

    folder: Path
    tuned: list[TunedMethod]


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
    names = name_groups([run["method"] for _, _, run in ended], [list_settings(config) for _, config, _ in ended])
    runs = [
        {"folder": str(folder.path), **run, "method": name} for name, (folder, _, run) in zip(names, ended, strict=True)
    ]
    return Comparison(Path(path), runs)
