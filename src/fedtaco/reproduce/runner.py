"""Run a plan and collect its results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtaco.experiment.concurrent import require_folder_for_runs, run_all
from fedtaco.records import RunFolder
from fedtaco.records.detection_rates import threshold_rates
from fedtaco.reproduce.plan import Plan, PlannedCell
from fedtaco.reproduce.presets import Preset
from fedtaco.reproduce.results import CellResult, Reproduction
from fedtaco.reproduce.timing import time_rounds
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.options import RunOptions


def run_plan(plan: Plan, out: Path, options: RunOptions, callback: Callback) -> Reproduction:
    """Run and time everything that a table or figure needs.

    Parameters
    ----------
    plan
        What to run.
    out
        Folder in which the run folders are created.
    options
        How to run; with ``resume``, runs that have ended are not repeated.
    callback
        Called as runs proceed.

    Returns
    -------
    Reproduction
        Our results, with the paper's numbers.

    Raises
    ------
    InvalidInput
        If ``out`` is a file or the folder of a single run, or a run folder cannot be used.
    """
    require_folder_for_runs(out)
    summaries = run_all([(spec, out / folder) for spec, folder in plan.runs], options, callback)
    timed = time_rounds(plan.cells, options, callback) if plan.needs_timing else {}
    seeds = len(plan.cells[0].specs)
    cells = [
        _collect(plan.preset, cell, summaries[seeds * index : seeds * (index + 1)], timed.get(cell.key))
        for index, cell in enumerate(plan.cells)
    ]
    return Reproduction(plan.preset.name, plan.preset.title, plan.preset.shows, cells, plan.reductions, seeds)


def _collect(
    preset: Preset, cell: PlannedCell, summaries: Sequence[Mapping[str, Any]], timed: list[float] | None
) -> CellResult:
    panel, variant = cell.key
    folders = [RunFolder(run["folder"]) for run in summaries]
    histories = [folder.history() for folder in folders]
    judged = zip(histories, folders, strict=True) if preset.shows == "thresholds" else ()
    per_run = [run["client_seconds"] / run["rounds"] for run in summaries if run["client_seconds"] is not None]
    return CellResult(
        panel=panel,
        variant=variant,
        local_steps=cell.specs[0].settings["local_steps"],
        summaries=summaries,
        curves=[history.column("accuracy") for history in histories],
        round_seconds=per_run if timed is None else timed,
        paper=preset.paper_value(variant, panel),
        threshold_rates=[threshold_rates(history, folder.partition()) for history, folder in judged],
    )
