"""``fedtaco methods``: tables of all methods and parameters, and the explanation of one method."""

import dataclasses
import inspect
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from fedtaco.cli.console import PlainConsole
from fedtaco.methods import METHODS, Cost, Method
from fedtaco.parameters import MAX_NUMBER, Configurable, domains
from fedtaco.records.formatting import pluralize
from fedtaco.trust import DETECTORS

CATEGORIES = ("baseline", "correction", "momentum", "aggregation", "robustness", "adaptive server")
"""The categories of methods, in the order of the table."""
SYMBOLS = (
    "w is the global model, x a client's, g the gradient on a batch, U_i = x_0 - x_K the update of client i after K "
    "steps (K_i if clients differ), p_i its aggregation weight, N the number of all clients; memory starts at zero."
)
COSTS = (
    "For each client: gradient evaluations (+ gradients over all samples per round) and further vector operations per "
    "step; vectors kept between rounds; vectors received (+ single numbers) and sent per round."
)


def by_category() -> list[type[Method]]:
    """Return the registered methods, ordered by category."""
    return sorted(METHODS.values(), key=lambda method: CATEGORIES.index(method.category))


def method_row(method: type[Method]) -> dict[str, Any]:
    """Return what is known about a method, as plain data."""
    return {
        "method": method.name,
        "category": method.category,
        "changes": method.summary,
        "explanation": explanation(method),
        "unequal_steps": describe_unequal_steps(method),
        "reference": method.reference,
        "cost": dataclasses.asdict(method.cost),
        "parameters": {
            f"{method.name}.{parameter}": {"default": default, "means": means, "values": values}
            for parameter, default, means, values in parameter_rows(method)
        },
    }


def describe_unequal_steps(method: type[Method]) -> str:
    """Return what a method does if clients take different numbers of steps."""
    return method.unequal_steps or "Refused: all clients must take equally many steps."


def explanation(method: type[Method]) -> str:
    """Return a method's docstring without markup, in which indented paragraphs are formulas; "" if there is none."""
    text = method.__doc__ or ""
    is_generated = text.startswith(f"{method.__name__}(")  # by dataclass, for a class without a docstring
    return "" if is_generated else inspect.cleandoc(text).replace("``", "").replace("*all*", "all")


def parameter_rows(owner: type[Configurable]) -> Iterator[tuple[str, Any, str, str]]:
    """Yield the name, default, meaning and valid values of each parameter."""
    for name, domain in domains(owner).items():
        values = domain.describe().replace(f" and at most {MAX_NUMBER:g}", "")
        yield name, getattr(owner(), name), domain.help, values


def cost_cells(cost: Cost) -> tuple[str, ...]:
    """Return the cost of a client in the columns grad, ops, kept, down and up."""
    gradients = f"{cost.gradients}+{cost.full_passes}" if cost.full_passes else f"{cost.gradients}"
    down = f"{cost.down}+{cost.scalars_down}" if cost.scalars_down else f"{cost.down}"
    return gradients, str(cost.vector_ops), str(cost.memory), down, f"{cost.up:g}"


def describe_cost(cost: Cost) -> str:
    """Return the cost of a client as sentences.

    >>> describe_cost(Cost(gradients=2, gradients_saved=1, vector_ops=4, up=2))
    '2 gradients (1 fewer per round) and 4 further vector operations per step. Per round, 1 vector received, 2 sent.'
    """
    gradients = pluralize(cost.gradients, "gradient")
    if cost.gradients_saved:
        gradients += f" ({cost.gradients_saved} fewer per round)"
    sentences = [f"{gradients} and {pluralize(cost.vector_ops, 'further vector operation')} per step."]
    if cost.full_passes:
        sentences.append(f"{pluralize(cost.full_passes, 'gradient')} over all samples per round.")
    if cost.memory:
        sentences.append(f"{pluralize(cost.memory, 'vector')} kept between rounds.")
    numbers = f" and {pluralize(cost.scalars_down, 'number')}" if cost.scalars_down else ""
    sentences.append(f"Per round, {pluralize(cost.down, 'vector')}{numbers} received, {cost.up:g} sent.")
    return " ".join(sentences)


def print_methods() -> None:
    """Print a table of what each method changes and costs, and a table of the parameters of methods and detectors."""
    style: dict[str, Any] = {"box": SIMPLE_HEAD, "collapse_padding": True, "pad_edge": False, "show_edge": False}
    costs = Table(
        Column("method", no_wrap=True),
        "what it changes in FedAvg",
        *(Column(name, justify="right", no_wrap=True) for name in ("grad", "ops", "kept", "down", "up")),
        caption=f"{COSTS} 'fedtaco methods NAME' explains one method.",
        caption_justify="left",
        **style,
    )
    for category, methods in groupby(by_category(), key=lambda method: method.category):
        costs.add_row(Text(category, "bold"))
        for method in methods:
            costs.add_row(method.name, method.summary, *cost_cells(method.cost))
    parameters = Table(Column("parameter", no_wrap=True), Column("default", no_wrap=True), "meaning", **style)
    owners: list[type[Configurable]] = [*by_category(), *DETECTORS.values()]
    for owner in owners:
        detector = f" (detector {owner.name})" if owner.name in DETECTORS else ""
        for name, default, means, _ in parameter_rows(owner):
            parameters.add_row(f"{owner.name}.{name}", _shown(default), f"{means}{detector}")
    PlainConsole().print(costs, "", parameters)


def print_method(method: type[Method]) -> None:
    """Print the explanation of a method: formula, parameters, cost, unequal steps and reference."""
    parts: list[RenderableType] = [Text(f"{method.name} ({method.category}): {method.summary}", "bold")]
    for paragraph in explanation(method).split("\n\n"):
        is_formula = paragraph.startswith(" ")
        parts += ["", Text(paragraph, no_wrap=True) if is_formula else Text(" ".join(paragraph.split()))]
    parts += ["", Text(SYMBOLS, "dim")]
    rows = Table.grid(Column(no_wrap=True), Column(no_wrap=True), Column(), padding=(0, 2))
    for name, default, means, values in parameter_rows(method):
        rows.add_row(f"{method.name}.{name}", _shown(default), f"{means}; {values}")
    sections: dict[str, RenderableType] = {
        "Parameters, with defaults": rows if rows.row_count else "none",
        "Cost for a client": describe_cost(method.cost),
        "Clients with different numbers of steps": describe_unequal_steps(method),
        "Reference": method.reference or "none given",
    }
    for title, content in sections.items():
        parts += ["", Text(title, "bold"), Padding(content, (0, 0, 0, 2))]
    PlainConsole().print(Group(*parts))


def _shown(default: Any) -> str:
    return "–" if default is None else str(default)
