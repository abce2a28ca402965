"""Seconds of the slowest client in a round, from a short serial run in which the methods take turns.

All clients perform the same number of steps, so a few of them suffice. Taking turns spreads the
fluctuations of a busy machine evenly over the methods.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count, groupby, islice

from fedtaco.errors import RunStopped
from fedtaco.experiment.prepared import PreparedRun
from fedtaco.reproduce.plan import CellKey, PlannedCell
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.settings import ExperimentConfig, RunOptions

TURNS = 5
CLIENTS_PER_TURN = 2
MAX_STEPS = 50
"""Number of local steps from which the seconds of longer rounds are extrapolated."""


def time_rounds(cells: Sequence[PlannedCell], options: RunOptions, callback: Callback) -> dict[CellKey, list[float]]:
    """Time a few rounds of each cell; within a panel, the cells take turns.

    Parameters
    ----------
    cells
        What to time, sorted by panel.
    options
        Where the data are.
    callback
        Its ``on_timing_turn`` is called after every turn.

    Returns
    -------
    dict
        Seconds of the slowest client in each round but the first, which warms up, by panel and variant.
        There are fewer than ``TURNS`` if the run diverged.
    """
    seconds: dict[CellKey, list[float]] = {cell.key: [] for cell in cells}
    turn = count(1)
    for _, group in groupby(cells, key=lambda cell: cell.panel.name):
        timed = [(cell.key, _round_seconds(cell, options)) for cell in group]
        for _ in range(TURNS + 1):
            for key, rounds in timed:
                seconds[key].extend(islice(rounds, 1))
                callback.on_timing_turn(next(turn), len(cells) * (TURNS + 1))
    return {key: own[1:] for key, own in seconds.items()}


def _round_seconds(cell: PlannedCell, options: RunOptions) -> Iterator[float]:
    """Yield the seconds of one short serial round after another, each run when it is asked for; end if one diverges."""
    whole = cell.configs[0]
    steps = min(whole["local_steps"], MAX_STEPS)
    short: ExperimentConfig = {
        **whole,
        "engine": "serial",
        "rounds": TURNS + 1,
        "local_steps": steps,
        "participation": min(1.0, CLIENTS_PER_TURN / whole["clients"]),
    }
    simulator = PreparedRun.prepare(short, RunOptions(data_dir=options.data_dir)).simulator
    simulator.test = None
    factor = whole["local_steps"] / steps
    with suppress(RunStopped):
        for finished in simulator.rounds(simulator.initial_state()):
            assert finished.record.slowest_client_seconds is not None
            yield finished.record.slowest_client_seconds * factor
