"""Write the entries of ``docs/methods.md`` from the classes of the methods.

``python scripts/methods_page.py`` replaces the generated section of the page; a test checks that it is up to date.
"""

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap

from pages import DOCS, write_sections

from fedtaco.cli.methods import by_category, describe_cost, describe_unequal_steps, explanation, parameter_rows
from fedtaco.methods import Method

WIDTH = 120
"""Maximum number of characters in a line of the page."""


def describe_methods() -> str:
    """Return one entry per method, grouped by category."""
    lines: list[str] = []
    for category, methods in groupby(by_category(), key=lambda method: method.category):
        lines += [f"## {category.capitalize()}", ""]
        for method in methods:
            lines += [*describe(method), ""]
    return "\n".join(lines).strip()


def describe(method: type[Method]) -> Iterator[str]:
    """Yield the lines of a method's entry."""
    yield f"### {method.name}"
    for paragraph in explanation(method).split("\n\n"):
        yield ""
        if paragraph.startswith(" "):
            yield from ("```", *(line[4:] for line in paragraph.splitlines()), "```")
        else:
            yield from wrap(paragraph, WIDTH, break_on_hyphens=False)
    yield ""
    for item in list_facts(method):
        yield from wrap(f"- {item}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def list_facts(method: type[Method]) -> Iterator[str]:
    """Yield the parameters, the cost, what happens with unequal steps, and the reference."""
    for name, default, means, values in parameter_rows(method):
        shown = "" if default is None else f" = {default}"
        yield f"`{method.name}.{name}`{shown}: {means}; {values}"
    yield f"Cost for a client: {describe_cost(method.cost)}"
    yield f"Unequal steps: {describe_unequal_steps(method)}"
    yield f"Reference: {method.reference}"


if __name__ == "__main__":
    write_sections(DOCS / "methods.md", {"methods": describe_methods()})
