"""The table of methods."""

import dataclasses
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from fedtaco.methods import METHODS
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
        Column("method", no_wrap=True),
        "what it changes in FedAvg",
        *(Column(name, justify="right", no_wrap=True) for name in ("grad", "ops", "kept", "down", "up")),
        caption="For each client: gradient evaluations and further vector operations per step; vectors kept between "
        "rounds; vectors received (+ single numbers) and sent per round.",
        caption_justify="left",
    )
    parameters = Table(Column("parameter", no_wrap=True), Column("default", no_wrap=True), "meaning")
    for name, kind in METHODS.items():
        cost = kind.cost
        down = f"{cost.down}+{cost.scalars_down}" if cost.scalars_down else f"{cost.down}"
        numbers = (cost.gradients, cost.vector_ops, cost.memory, down, f"{cost.up:g}")
        costs.add_row(name, kind.summary, *map(str, numbers))
    owners: list[type[Configurable]] = [*METHODS.values(), *DETECTORS.values()]
    for owner in owners:
        detector = f" (detector {owner.name})" if owner.name in DETECTORS else ""
        for parameter, domain in domains(owner).items():
            default = getattr(owner(), parameter)
            shown = "–" if default is None else str(default)
            parameters.add_row(f"{owner.name}.{parameter}", shown, f"{domain.help}{detector}")
    Console().print(costs, parameters)
