"""``fedtaco methods``: the tables of methods and parameters."""

import dataclasses
from typing import Any

from rich.table import Column, Table

from fedtaco.cli.console import PlainConsole
from fedtaco.methods import METHODS
from fedtaco.parameters import Configurable, domains
from fedtaco.trust import DETECTORS


def method_rows() -> list[dict[str, Any]]:
    """Return each method with its cost and parameters, as plain data."""
    return [
        {
            "method": name,
            "changes": method_class.summary,
            "cost": dataclasses.asdict(method_class.cost),
            "parameters": {
                f"{name}.{parameter}": {
                    "default": getattr(method_class(), parameter),
                    "means": domain.help,
                    "values": domain.describe(),
                }
                for parameter, domain in domains(method_class).items()
            },
        }
        for name, method_class in METHODS.items()
    ]


def print_methods() -> None:
    """Print a table of what each method changes and costs, and a table of the parameters of methods and detectors."""
    costs = Table(
        Column("method", no_wrap=True),
        "what it changes in FedAvg",
        *(Column(name, justify="right", no_wrap=True) for name in ("grad", "ops", "kept", "down", "up")),
        caption="For each client: gradient evaluations and further vector operations per step; vectors kept between "
        "rounds; vectors received (+ single numbers) and sent per round.",
        caption_justify="left",
    )
    parameters = Table(Column("parameter", no_wrap=True), Column("default", no_wrap=True), "meaning")
    for name, method_class in METHODS.items():
        cost = method_class.cost
        down = f"{cost.down}+{cost.scalars_down}" if cost.scalars_down else f"{cost.down}"
        numbers = (cost.gradients, cost.vector_ops, cost.memory, down, f"{cost.up:g}")
        costs.add_row(name, method_class.summary, *map(str, numbers))
    owners: list[type[Configurable]] = [*METHODS.values(), *DETECTORS.values()]
    for owner in owners:
        detector = f" (detector {owner.name})" if owner.name in DETECTORS else ""
        for parameter, domain in domains(owner).items():
            default = getattr(owner(), parameter)
            shown = "–" if default is None else str(default)
            parameters.add_row(f"{owner.name}.{parameter}", shown, f"{domain.help}{detector}")
    PlainConsole().print(costs, parameters)
