"""Plan the runs for a table or figure of the paper, at full or reduced scale."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtaco.errors import InvalidInput, unknown
from fedtaco.experiment.specs import build_spec
from fedtaco.reproduce.presets import Panel, Preset, Variant
from fedtaco.settings.run_spec import RunSpec

SCALES = ("smoke", "small", "full")
FULL_SEEDS = 3
CellKey = tuple[str, str]
"""Name of the panel and name of the variant."""
VIEWS_WITHOUT_RUNS = ("update-time", "round-time")
"""Views that need only the seconds of a round."""
VIEWS_WITHOUT_SECONDS = ("accuracy", "rounds", "alpha", "thresholds")
"""Views that need no seconds."""


@dataclass(frozen=True)
class Scale:
    """How many rounds, local steps and seeds to run.

    Parameters
    ----------
    name
        ``full``: the paper's rounds and local steps, three seeds. ``small``: a fifth of both
        (at least 5 rounds and 10 steps), one seed.
        ``smoke``: two rounds of three steps, one seed.
    seeds, rounds, local_steps
        Values to use instead of those of the scale.

    Raises
    ------
    InvalidInput
        If there is no such scale, or ``seeds`` is less than one.
    """

    name: str = "full"
    seeds: int | None = None
    rounds: int | None = None
    local_steps: int | None = None

    def __post_init__(self) -> None:
        if self.name not in SCALES:
            raise unknown("scale", self.name, SCALES)
        if self.seed_count < 1:
            raise InvalidInput(f"seeds is {self.seed_count}; it must be at least 1.")

    @property
    def seed_count(self) -> int:
        """Number of seeds."""
        default = FULL_SEEDS if self.name == "full" else 1
        return default if self.seeds is None else self.seeds

    def training_length(self, full: Mapping[str, Any]) -> dict[str, int]:
        """Return the number of rounds and local steps to run; ``full`` holds the paper's settings."""
        rounds, steps = {
            "full": (full["rounds"], full["local_steps"]),
            "small": (max(5, full["rounds"] // 5), max(10, full["local_steps"] // 5)),
            "smoke": (2, 3),
        }[self.name]
        return {
            "rounds": rounds if self.rounds is None else self.rounds,
            "local_steps": steps if self.local_steps is None else self.local_steps,
        }


@dataclass(frozen=True)
class PlannedCell:
    """One cell of a table or figure, with a run for each seed."""

    panel: Panel
    variant: Variant
    specs: list[RunSpec]

    @property
    def key(self) -> CellKey:
        return self.panel.name, self.variant.name

    def folder(self, spec: RunSpec) -> Path:
        """Return the folder of a run, relative to the folder of the reproduction."""
        variant = self.variant.name.replace(" ", "")
        return Path(self.panel.name.replace(" ", "-")) / f"{variant}-seed{spec.settings['seed']}"


@dataclass(frozen=True)
class Plan:
    """Everything that is run for a table or figure."""

    preset: Preset
    cells: list[PlannedCell]
    reductions: list[str]
    """For each panel whose rounds or local steps differ from the paper's, a text that states the difference."""
    measured: bool
    """Whether seconds are measured in the whole runs, and not in separate short ones."""

    @property
    def runs(self) -> list[tuple[RunSpec, Path]]:
        """The whole runs with their folders; empty if it is enough to time a few rounds."""
        if self.preset.shows in VIEWS_WITHOUT_RUNS and not self.measured:
            return []
        return [(spec, cell.folder(spec)) for cell in self.cells for spec in cell.specs]

    @property
    def needs_timing(self) -> bool:
        """Whether a few rounds must be timed in separate short runs."""
        return self.preset.shows not in VIEWS_WITHOUT_SECONDS and not self.measured


def plan_reproduction(preset: Preset, scale: Scale, *, measured: bool = False) -> Plan:
    """Plan the runs of a table or figure.

    Parameters
    ----------
    preset
        The table or figure.
    scale
        How many rounds, local steps and seeds to run.
    measured
        Whether to measure seconds in the whole runs, which are then serial; otherwise they are measured in short
        runs in which the methods take turns.

    Raises
    ------
    InvalidInput
        If a setting is not valid.
    """
    cells, reductions = [], []
    engine = {"engine": "serial"} if measured else {}
    for panel in preset.panels:
        for variant in panel.variants:
            full = _spec(panel, variant, engine).settings
            length = scale.training_length(full)
            specs = [_spec(panel, variant, {**engine, **length, "seed": seed}) for seed in range(scale.seed_count)]
            cells.append(PlannedCell(panel, variant, specs))
        paper = {"rounds": full["rounds"], "local_steps": full["local_steps"]}
        changed = [name for name in paper if length[name] != paper[name]]
        changes = [f"{length[name]} instead of {paper[name]} {name.replace('_', ' ')}" for name in changed]
        if changes:
            reductions.append(f"{panel.name}: {', '.join(changes)}")
    return Plan(preset, cells, reductions, measured)


def _spec(panel: Panel, variant: Variant, settings: Mapping[str, Any]) -> RunSpec:
    own = {"method": variant.method, "parameters": dict(variant.parameters)}
    return build_spec(**{**panel.settings, **settings, **own})
