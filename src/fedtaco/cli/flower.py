"""``fedtaco flower``: write a Flower app that runs any of the methods."""

import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from fedtaco.cli.console import print_line
from fedtaco.errors import InvalidInput

FILES = ("pyproject.toml", "client_app.py", "server_app.py", "task.py")

app = typer.Typer(help="Federated training across machines, on Flower.", no_args_is_help=True)


@app.callback()
def flower() -> None:
    """Federated training across machines, on Flower."""


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="Folder to write; it must be new or empty.")],
    method: Annotated[str, typer.Option(help="A method, or your own as package.module:Class.")] = "taco",
) -> None:
    """Write a Flower app that trains on handwritten digits; put your own model and data into task.py.

    Examples:

      fedtaco flower new my-app

      fedtaco flower new my-app --method scaffold
    """
    from fedtaco.files import writing
    from fedtaco.methods import METHODS

    method_class = METHODS.find(method)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder} exists and is not an empty folder; name another.")
    name = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-") or "app"
    allowed = "" if method in METHODS else f', allow_methods=["{method}"]'
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file in FILES:
            template = Template((files("fedtaco.cli") / "flower_app" / f"{file}.in").read_text(encoding="utf-8"))
            text = template.substitute(name=name, method=method, allowed=allowed)
            (folder / file).write_text(text, encoding="utf-8")
    print_line(
        f"Written to {folder}, with {method_class.name}: {method_class.summary}. Its client and server are in "
        "client_app.py and server_app.py; docs/flower.md explains how to run it."
    )
