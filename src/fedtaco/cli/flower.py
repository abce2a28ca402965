"""``fedtaco flower``: a ready Flower app with any method."""

import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from fedtaco.cli.options import print_line
from fedtaco.errors import InvalidInput

FILES = ("pyproject.toml", "client_app.py", "server_app.py", "task.py")

app = typer.Typer(help="Federated training across machines, on Flower.", no_args_is_help=True)


@app.callback()
def flower() -> None:
    """Federated training across machines, on Flower."""


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="The folder to write; it must not exist, or be empty.")],
    method: Annotated[str, typer.Option(help="A method, or your own as package.module:Class.")] = "taco",
) -> None:
    """Write a Flower app that trains on handwritten digits as it is: change task.py to your model and data.

    Examples:

      fedtaco flower new my-app

      fedtaco flower new my-app --method scaffold
    """
    from fedtaco.methods import METHODS
    from fedtaco.records.files import writing

    method_class = METHODS.find(method)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder} exists and is not an empty folder; name another.")
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "app"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file in FILES:
            template = Template((files("fedtaco.cli") / "flower_app" / f"{file}.in").read_text(encoding="utf-8"))
            (folder / file).write_text(template.substitute(name=name, method=method), encoding="utf-8")
    print_line(
        f"Written to {folder}, with {method_class.name}: {method_class.summary}. Its client and server half are in "
        "client_app.py and server_app.py; docs/flower.md explains how to run it."
    )
