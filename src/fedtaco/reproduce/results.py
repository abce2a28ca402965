"""Our results for a table or figure of the paper, with the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from fedtaco.records.detection_rates import Rates
from fedtaco.records.method_summary import MethodSummary, summarize_methods


@dataclass(frozen=True)
class CellResult:
    """Results of one variant in one panel, and the paper's."""

    panel: str
    variant: str
    local_steps: int
    summaries: Sequence[Mapping[str, Any]]
    """Summaries of the runs, one per seed."""
    curves: Sequence[Sequence[float | None]]
    """Test accuracy after each round, one curve per seed."""
    round_seconds: Sequence[float]
    """Seconds of the slowest client in several rounds or, if measured in whole runs, on average in each run."""
    paper: Any
    """The paper's number or numbers; ``None`` if the paper gives none."""
    threshold_rates: Sequence[Mapping[tuple[float, str], Rates]] = ()
    """Rates of the paper's detector at each pair of thresholds, one mapping per seed."""

    @property
    def ours(self) -> MethodSummary | None:
        """Our results over all seeds; ``None`` if rounds were only timed."""
        return summarize_methods(self.summaries)[0] if self.summaries else None

    @property
    def seconds(self) -> float | None:
        """Median seconds of a round."""
        return median(self.round_seconds) if self.round_seconds else None

    @property
    def seconds_to_target(self) -> float | None:
        """Mean rounds to the target times the seconds of a round; ``None`` if a seed failed or did not reach it."""
        if self.ours is None or not self.ours.reached_target or self.seconds is None:
            return None
        return self.seconds * fmean(run["rounds_to_target"] for run in self.summaries)

    @property
    def alpha(self) -> dict[str, list[float]]:
        """Mean α of each kind of client, one number per seed."""
        kinds = {kind for run in self.summaries for kind in run["alpha"]}
        return {kind: [run["alpha"][kind] for run in self.summaries if kind in run["alpha"]] for kind in kinds}


@dataclass(frozen=True)
class Reproduction:
    """All results of a table or figure."""

    name: str
    title: str
    shows: str
    cells: Sequence[CellResult]
    reductions: Sequence[str]
    """For each panel whose rounds or local steps differ from the paper's, a text that states the difference."""
    seeds: int

    @property
    def panels(self) -> list[str]:
        return list(dict.fromkeys(cell.panel for cell in self.cells))

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(cell.variant for cell in self.cells))

    def cell(self, panel: str, variant: str) -> CellResult | None:
        """Return a cell by the names of its panel and variant, or ``None``."""
        return next((cell for cell in self.cells if (cell.panel, cell.variant) == (panel, variant)), None)

    @property
    def caption(self) -> str:
        """The title, with the number of seeds and the differences from the paper's settings."""
        seeds = "one seed" if self.seeds == 1 else f"mean ± standard deviation over {self.seeds} seeds"
        reduced = f"Reduced from the paper's settings: {'; '.join(self.reductions)}."
        settings = reduced if self.reductions else "The paper's settings."
        return f"{self.title}: ours, {seeds}; the paper's in brackets. {settings}"
