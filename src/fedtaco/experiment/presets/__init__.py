"""The paper's tables and figures, a readable TOML file each, and the paper's own numbers."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from fedtaco.errors import InvalidInput, unknown

SCALES = ("smoke", "small", "full")
VIEWS = ("rounds", "accuracy", "curves", "time-to-accuracy", "update-time", "round-time", "alpha", "thresholds")


@dataclass(frozen=True)
class Variant:
    """One line of a table or curve of a figure: a method with parameters."""

    name: str
    method: str
    parameters: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Panel:
    """One column of a table or part of a figure: settings, with the variants that are run in them."""

    name: str
    settings: Mapping[str, Any]
    variants: Sequence[Variant]


@dataclass(frozen=True)
class Preset:
    """A table or figure of the paper."""

    name: str
    title: str
    shows: str
    panels: Sequence[Panel]
    paper: str | None = None
    """Where the paper's numbers are."""
    paper_rows: Mapping[str, str] = field(default_factory=dict)
    """What the paper calls a variant, where that is another name."""

    def paper_value(self, variant: str, panel: str) -> Any:
        """The paper's number (or list of numbers) for a cell; ``None`` where it gives none."""
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

    def restricted(self, datasets: Sequence[str], methods: Sequence[str]) -> Preset:
        """Only these datasets and methods; all where none are named."""
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
        left = [panel for panel in panels if panel.variants]
        if not left:
            raise InvalidInput(f"{self.name} has none of these methods on these datasets; leave one of the two away.")
        return replace(self, panels=left)


def preset_names() -> list[str]:
    return sorted(path.name.removesuffix(".toml") for path in files(__name__).iterdir() if path.name.endswith(".toml"))


def load_preset(name: str) -> Preset:
    """A preset by name.

    >>> load_preset("table-rounds").paper_value("taco", "fmnist")[0]
    73.28
    """
    if name not in preset_names():
        raise unknown("table or figure", name, preset_names())
    return read_preset(name, files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def read_preset(name: str, text: str) -> Preset:
    """A preset from its file's text: ``methods`` stand for variants without parameters."""
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
    numbers: dict[str, Any] = json.loads(files(__name__).joinpath("paper.json").read_text(encoding="utf-8"))
    return numbers


def _variants(entry: Mapping[str, Any]) -> list[Variant]:
    named = [Variant(name, name) for name in entry.get("methods", [])]
    return named + [Variant(**one) for one in entry.get("variants", [])]
