"""The table of methods."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.console import Console
from rich.table import Table

from fedtaco.methods import METHODS, Cost
from fedtaco.parameters import Configurable, domains
from fedtaco.trust import DETECTORS


def method_rows() -> list[dict[str, Any]]:
    """Return each method with its cost and parameters, as plain data."""
    return [
        {
            "method": name,
            "changes": kind.summary,
            "cost": dataclasses.asdict(kind.cost),
            "parameters": {
                f"{name}.{parameter}": {
                    "default": getattr(kind(), parameter),
                    "means": domain.help,
                    "values": domain.describe(),
                }
                for parameter, domain in domains(kind).items()
            },
        }
        for name, kind in METHODS.items()
    ]


def print_methods() -> None:
    """Print a table of what the methods change and cost, and one of their parameters."""
    costs = Table(
        caption="For each client: gradient evaluations and further vector operations per step; vectors kept between "
        "rounds; vectors received (+ single numbers) and sent per round.",
        caption_justify="left",
    )
    costs.add_column("method", no_wrap=True)
    costs.add_column("what it changes in FedAvg")
    for heading in ("grad", "ops", "kept", "down", "up"):
        costs.add_column(heading, justify="right", no_wrap=True)
    parameters = Table()
    parameters.add_column("parameter", no_wrap=True)
    parameters.add_column("default", no_wrap=True)
    parameters.add_column("meaning")
    for name, kind in METHODS.items():
        costs.add_row(name, kind.summary, *cost_cells(kind.cost))
    owners: list[type[Configurable]] = [*METHODS.values(), *DETECTORS.values()]
    for owner in owners:
        detector = f" (detector {owner.name})" if owner.name in DETECTORS else ""
        for parameter, domain in domains(owner).items():
            default = getattr(owner(), parameter)
            shown = "–" if default is None else str(default)
            parameters.add_row(f"{owner.name}.{parameter}", shown, f"{domain.help}{detector}")
    Console().print(costs, parameters)


def cost_cells(cost: Cost) -> list[str]:
    """Return the cost of a method as the cells of a table."""
    down = f"{cost.down}+{cost.scalars_down}" if cost.scalars_down else f"{cost.down}"
    return [f"{cost.gradients}", f"{cost.vector_ops}", f"{cost.memory}", down, f"{cost.up:g}"]
