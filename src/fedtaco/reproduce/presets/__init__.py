"""Presets: one TOML file per table or figure of the paper, and the paper's own numbers."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from fedtaco.errors import InvalidInput, unknown
from fedtaco.files import packaged_presets, read_packaged_preset

VIEWS = ("rounds", "accuracy", "curves", "time-to-accuracy", "update-time", "round-time", "alpha", "thresholds")
"""What a table or figure can show."""


@dataclass(frozen=True)
class Variant:
    """One row of a table or curve of a figure: a method with parameters."""

    name: str
    method: str
    parameters: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Panel:
    """One column of a table or part of a figure: settings, and the variants to run with them."""

    name: str
    settings: Mapping[str, Any]
    variants: Sequence[Variant]


@dataclass(frozen=True)
class Preset:
    """A table or figure of the paper."""

    name: str
    title: str
    shows: str
    """One of :data:`VIEWS`."""
    panels: Sequence[Panel]
    paper: str | None = None
    """Key of the paper's numbers in ``paper.json``."""
    paper_rows: Mapping[str, str] = field(default_factory=dict)
    """The name of a variant in ``paper.json``, if it is a different one."""

    def paper_value(self, variant: str, panel: str) -> Any:
        """Return the paper's number or numbers for a cell; ``None`` if the paper gives none."""
        numbers = paper_numbers().get(self.paper or "", {})
        if self.shows == "thresholds":
            return numbers
        if self.shows == "alpha":
            return numbers.get(panel)
        row = self.paper_rows.get(variant, variant)
        for first, second in ((row, panel), (panel, row)):
            found = numbers.get(first)
            if isinstance(found, dict) and second in found:
                return found[second]
        found = numbers.get(row)
        return None if isinstance(found, dict) else found

    def select(self, datasets: Sequence[str], methods: Sequence[str]) -> Preset:
        """Return the preset with only these datasets and methods; an empty list selects all.

        Raises
        ------
        InvalidInput
            If the preset lacks one of them, or contains none of these methods on these datasets.
        """
        known = {panel.settings["dataset"] for panel in self.panels}
        for name in set(datasets) - known:
            raise unknown(f"dataset in {self.name}", name, known)
        listed = {variant.method for panel in self.panels for variant in panel.variants}
        for name in set(methods) - listed:
            raise unknown(f"method in {self.name}", name, listed)
        panels = [
            replace(panel, variants=[one for one in panel.variants if not methods or one.method in methods])
            for panel in self.panels
            if not datasets or panel.settings["dataset"] in datasets
        ]
        selected = [panel for panel in panels if panel.variants]
        if not selected:
            raise InvalidInput(f"{self.name} has none of these methods on these datasets; omit datasets or methods.")
        return replace(self, panels=selected)


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return packaged_presets(__name__)


def load_preset(name: str) -> Preset:
    """Return a preset by name.

    Raises
    ------
    InvalidInput
        If there is no such preset.

    Examples
    --------
    >>> load_preset("table-rounds").paper_value("taco", "fmnist")[0]
    73.28
    """
    if name not in preset_names():
        raise unknown("table or figure", name, preset_names())
    return read_preset(name, read_packaged_preset(__name__, name))


def read_preset(name: str, text: str) -> Preset:
    """Parse the text of a preset file.

    Each name in ``methods`` is short for a variant without parameters. ``methods`` and ``variants`` of a panel replace
    those of the file.

    Raises
    ------
    InvalidInput
        If ``shows`` is not one of :data:`VIEWS`.
    """
    content = tomllib.loads(text)
    shared = _variants(content)
    panels = []
    for entry in content["panels"]:
        own = _variants(entry) or shared
        settings = {key: value for key, value in entry.items() if key not in ("name", "methods", "variants")}
        panels.append(Panel(entry["name"], settings, own))
    if content["shows"] not in VIEWS:
        raise InvalidInput(f"The preset {name} shows '{content['shows']}'; it must be one of {', '.join(VIEWS)}.")
    return Preset(name, content["title"], content["shows"], panels, content.get("paper"), content.get("paper_rows", {}))


def paper_numbers() -> dict[str, Any]:
    """Return all numbers of the paper, by table or figure."""
    numbers: dict[str, Any] = json.loads(files(__name__).joinpath("paper.json").read_text(encoding="utf-8"))
    return numbers


def _variants(entry: Mapping[str, Any]) -> list[Variant]:
    named = [Variant(name, name) for name in entry.get("methods", [])]
    return named + [Variant(**one) for one in entry.get("variants", [])]
