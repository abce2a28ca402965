"""Measure the seconds of the slowest client in a round, in short serial runs in which the methods take turns.

All clients perform the same number of steps, so it is enough to time a few of them. Taking turns
spreads the fluctuations of a busy machine evenly over the methods.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, groupby, islice

from fedtaco.errors import RunStopped
from fedtaco.experiment.prepared_run import PreparedSimulation
from fedtaco.reproduce.plan import CellKey, PlannedCell
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.options import RunOptions

TURNS = 5
"""Number of rounds that are timed, after one that warms up."""
CLIENTS_PER_TURN = 2
"""Number of clients in each of these rounds."""
MAX_STEPS = 50
"""Maximum number of local steps that are timed; the seconds of longer rounds are extrapolated."""


def time_rounds(cells: Sequence[PlannedCell], options: RunOptions, callback: Callback) -> dict[CellKey, list[float]]:
    """Time a few rounds of each cell; within a panel, the cells take turns.

    Parameters
    ----------
    cells
        What to time, sorted by panel.
    options
        Its ``data_dir`` is used.
    callback
        Its ``on_timing_turn`` is called after every turn.

    Returns
    -------
    dict
        For each panel and variant, the seconds of the slowest client in each round except the first, which warms up.
        There are fewer than ``TURNS`` numbers if the run diverged.
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
    """Yield the seconds of short serial rounds; each round is run when its seconds are requested. End on divergence."""
    whole = cell.specs[0].settings
    steps = min(whole["local_steps"], MAX_STEPS)
    short = cell.specs[0].with_settings(
        engine="serial",
        rounds=TURNS + 1,
        local_steps=steps,
        participation=min(1.0, CLIENTS_PER_TURN / whole["clients"]),
    )
    simulation = PreparedSimulation.prepare(short, RunOptions(data_dir=options.data_dir))
    simulation.clients.data = replace(simulation.clients.data, test=None)
    factor = whole["local_steps"] / steps
    with suppress(RunStopped):
        for finished in simulation.federation.rounds(simulation.federation.initial):
            assert finished.record.slowest_client_seconds is not None
            yield finished.record.slowest_client_seconds * factor
