"""``fedtaco flower``: write a Flower app that runs any of the methods, and run it on this machine."""

import re
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer
from rich.text import Text

from fedtaco.cli.console import print_line, stderr
from fedtaco.cli.options import Overwrite
from fedtaco.errors import InvalidInput
from fedtaco.settings.declarations import OUTPUT

FILES = ("pyproject.toml", "README.md", "task.py", "client_app.py", "server_app.py", "nginx.conf", ".gitignore")
MAX_NAME = 32
"""Maximum length of an app's name on Flower."""

app = typer.Typer(no_args_is_help=True)


@app.callback()
def flower() -> None:
    """Federated training across machines, on Flower.

    First steps:

      fedtaco flower new my-app             writes an app that learns handwritten digits

      fedtaco flower run my-app --nodes 3   runs it on this machine: a SuperLink and three SuperNodes

      fedtaco report runs/my-app            writes a page about the run

    Then put your own model and data into my-app/task.py, and run it again with --overwrite.

    On a SuperLink of your own, 'flwr run my-app lab --stream' starts the same app; docs/flower.md says how.
    """


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
    module = _own_module(method_class)
    allowed = "" if method in METHODS else f', allow_methods=["{method}"]'
    names = {"name": _app_name(folder), "folder": folder.absolute().name, "method": method, "allowed": allowed}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file in FILES:
            template = Template((files("fedtaco.cli") / "flower_app" / f"{file}.in").read_text(encoding="utf-8"))
            (folder / file).write_text(template.substitute(names), encoding="utf-8")
        if module is not None:
            shutil.copy(module, folder)
    print_line(f"Written to {folder}, with {method_class.name}: {method_class.summary}.")
    if module is not None:
        print_line(f"{folder / module.name} is a copy of your method.")
    print_line(f"Try it on this machine: fedtaco flower run {folder}")
    print_line(f"Put your own model and data into {folder / 'task.py'}; {folder / 'README.md'} says more.")


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="Folder of an app that 'fedtaco flower new' wrote.")] = Path(),
    nodes: Annotated[int, typer.Option(help="Number of SuperNodes, each with its own part of the data.")] = 3,
    run_config: Annotated[
        list[str] | None,
        typer.Option(help="Settings of the app, as in 'flwr run'; may be repeated.", metavar="KEY=VALUE ..."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/<name of the app> by default.", rich_help_panel=OUTPUT)
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Run a Flower app on this machine: a SuperLink and SuperNodes on 127.0.0.1, with TLS and new keys.

    The log of the server app is shown, and the run is recorded in a run folder; only this folder remains.

    Examples:

      fedtaco flower run my-app

      fedtaco flower run my-app --nodes 5 --run-config "num-server-rounds=3 method=scaffold" --out runs/scaffold
    """
    try:
        from fedtaco.flower.local_run import run_locally
    except ImportError as error:
        raise InvalidInput(error) from error
    from fedtaco.cli.tables import print_comparison
    from fedtaco.records import RunFolder

    record = RunFolder(out or Path("runs") / folder.resolve().name)
    settings = run_config or []
    print_comparison(
        [run_locally(folder, record, nodes=nodes, settings=settings, overwrite=overwrite, on_line=_print_log)]
    )
    print_line(f"Recorded in {record.path}")
    print_line(f"Write a page about it: fedtaco report {record.path}")


def _print_log(line: str) -> None:
    stderr.print(Text(line), soft_wrap=True)


def _app_name(folder: Path) -> str:
    """Return a name for an app in this folder that Flower allows."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")
    return (name if name[:1].isalpha() else f"app-{name}")[:MAX_NAME].strip("-")


def _own_module(method_class: type) -> Path | None:
    """Return the file of a user's own method if it is in the current folder, from where nodes cannot import it."""
    file = Path(str(sys.modules[method_class.__module__].__file__))
    if file.parent != Path.cwd():
        return None
    if file.name in FILES:
        raise InvalidInput(f"The method is in {file.name}, which is also the name of a file of the app; rename it.")
    return file
