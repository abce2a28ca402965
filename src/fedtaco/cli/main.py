"""The command ``fedtaco``.

Modules that need torch are imported inside the commands, so that ``--help`` answers at once.
"""

import json
import sys
import warnings
from typing import Annotated, Any

import click
import typer

from fedtaco.cli import benchmark, data, flower, report, reproduce
from fedtaco.cli.console import print_error, print_line, stderr
from fedtaco.cli.options import (
    CliOptions,
    ConfigFile,
    Format,
    MethodName,
    Seeds,
    as_json,
    is_given,
    parse_grid,
    with_experiment_settings,
)
from fedtaco.errors import InvalidInput, ProcessDied, RunStopped
from fedtaco.parameters import split_names
from fedtaco.processes import TERMINATED, interrupted_by_sigterm
from fedtaco.settings.declarations import EXPERIMENT, SWEEP_VALIDATION
from fedtaco.version import __version__

app = typer.Typer(
    help="Federated learning on non-IID data: TACO and the methods it is compared with.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.add_typer(flower.app, name="flower")
app.command()(reproduce.reproduce)
app.command()(benchmark.benchmark)
app.command()(report.report)
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
RESUMABLE = {"run", "compare", "sweep", "reproduce", "benchmark"}
RESUME_HINT = " Finished rounds are kept: the same command with --resume (and without --overwrite) continues them."
PAPER_METHODS = "fedavg,fedprox,foolsgold,scaffold,stem,fedacg,taco"


def main() -> None:
    """Run the command line; print an error that a user can fix as one sentence, without a traceback."""
    with warnings.catch_warnings(), interrupted_by_sigterm() as is_terminated:
        warnings.showwarning = lambda message, *_: print_line(str(message), stderr, style="yellow")
        code = _run_command()
        if code == INTERRUPTED:
            print_line(f"Stopped.{RESUME_HINT if set(sys.argv[1:2]) & RESUMABLE else ''}", stderr)
            code = TERMINATED if is_terminated() else code
    sys.exit(code)


def _run_command() -> int | None:
    """Run the command that the arguments of this process name, and return its exit code."""
    try:
        code: int | None = app(standalone_mode=False)
        return code
    except click.ClickException as problem:
        if sentence := problem.format_message():
            print_error(sentence)
        return problem.exit_code
    except (InvalidInput, RunStopped, ProcessDied) as problem:
        print_error(str(problem))
        return problem.exit_code
    except OSError as problem:
        print_error(f"{problem.strerror or problem}{'' if problem.filename is None else f': {problem.filename}'}")
        return InvalidInput.exit_code


@app.callback(invoke_without_command=True)
def common(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)


@app.command()
@with_experiment_settings()
def run(
    settings: dict[str, Any],
    options: CliOptions,
    config: ConfigFile = None,
    method: MethodName = "taco",
) -> None:
    """Run one method on one dataset and record it in a run folder.

    Examples:

      fedtaco run --method taco --dataset digits

      fedtaco run --method scaffold --participation 0.2 --rounds 50 --seed 1

      fedtaco run --method taco --set taco.gamma=0.02 --out runs/gamma --format json

      fedtaco run runs/gamma/config.toml --seed 1

      fedtaco run --dataset mine:load --model mine:Net --partition mine:split
    """
    from fedtaco.cli import actions
    from fedtaco.cli.results import point_to_better_method, print_results

    if is_given("method", method):
        settings["method"] = method
    done = actions.run_one(settings, config, options)
    print_results(done, options)
    point_to_better_method(done.runs[0]["method"])


@app.command()
@with_experiment_settings()
def compare(
    settings: dict[str, Any],
    options: CliOptions,
    methods: Annotated[
        str,
        typer.Option(help="Methods to compare, separated by commas, or all.", rich_help_panel=EXPERIMENT),
    ] = PAPER_METHODS,
    seeds: Seeds = 1,
) -> None:
    """Compare methods on the same data, seeds and batches.

    Examples:

      fedtaco compare --dataset digits

      fedtaco compare --methods fedavg,taco,taco-uniform --seeds 3 --out runs/tailoring

      fedtaco compare --methods fedavg,taco --seeds 5 --format latex --plot accuracy.pdf > table.tex

      fedtaco compare --methods all --rounds 5
    """
    from fedtaco.cli import actions
    from fedtaco.cli.results import print_results

    print_results(actions.compare_methods(split_names(methods), seeds, settings, options), options)


@app.command()
@with_experiment_settings(validation=SWEEP_VALIDATION)
def sweep(
    settings: dict[str, Any],
    options: CliOptions,
    grid: Annotated[
        list[str],
        typer.Option(
            help="What to vary, such as taco.gamma=0.001,0.01 or local_lr=0.01,0.1; may be repeated.",
            metavar="KEY=VALUES",
            rich_help_panel=EXPERIMENT,
        ),
    ],
    methods: Annotated[
        str, typer.Option(help="Methods to tune, separated by commas, or all.", rich_help_panel=EXPERIMENT)
    ] = "taco",
    budget: Annotated[
        int | None,
        typer.Option(help="Grid points to try per method, drawn at random; default: all.", rich_help_panel=EXPERIMENT),
    ] = None,
    seeds: Seeds = 1,
) -> None:
    """Tune each method over a grid of settings, by accuracy on held-out training data.

    Every point is run with every seed, and the mean accuracy on the held-out samples decides (--validation, by default
    a tenth of every client's samples); the accuracy on the test set is reported but not used to choose. --budget gives
    each method the same number of points, for a fair comparison.

    Examples:

      fedtaco sweep --methods fedavg,taco --grid local_lr=0.01,0.1 --grid taco.gamma=0.002,0.02

      fedtaco sweep --methods fedprox,taco --budget 2 --grid fedprox.zeta=0.01,0.1 --grid taco.gamma=0.01,0.02
    """
    from fedtaco.cli import actions
    from fedtaco.cli.results import print_sweep

    done = actions.tune_methods(split_names(methods), parse_grid(grid), budget, seeds, settings, options)
    print_sweep(done, options)


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(help="A method to explain; by default all are listed.", show_default=False)
    ] = None,
    format_: Format = "table",
) -> None:
    """List the methods, with what each changes in FedAvg, its cost and its parameters, or explain one.

    Examples:

      fedtaco methods

      fedtaco methods feddyn
    """
    json_wanted = as_json(format_)
    from fedtaco.cli.methods import by_category, method_row, print_method, print_methods
    from fedtaco.methods import METHODS

    if json_wanted:
        print(json.dumps(method_row(METHODS.find(name)) if name else [*map(method_row, by_category())], indent=2))
    elif name:
        print_method(METHODS.find(name))
    else:
        print_methods()


if __name__ == "__main__":
    main()
