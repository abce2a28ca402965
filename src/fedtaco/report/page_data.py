"""Collect everything that a report shows, in bounded size."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedtaco.records import DIAGNOSED, QUANTITIES, RunFolder
from fedtaco.records.formatting import pluralize
from fedtaco.records.swings import swings
from fedtaco.report.charts import (
    build_client_map,
    build_curves,
    build_partitions,
    has_unequal_work,
    is_timed,
    measures_of,
)
from fedtaco.report.colours import ON_DARK, ON_LIGHT
from fedtaco.report.events import Event, build_dropped, build_expulsions, describe_stability
from fedtaco.report.legend import explain_results
from fedtaco.report.own_samples import build_histograms, build_own_rows
from fedtaco.report.results import ResultsTable, build_run_results
from fedtaco.report.run_reader import ReportProgress, RunData, read_runs
from fedtaco.report.runs_by_method import MethodRuns, format_setting, group_by_method, varying_settings
from fedtaco.report.table_formats import format_table, results_table


@dataclass(frozen=True)
class PageData:
    """Everything that the page shows."""

    dataset: str
    rounds: int
    """Number of rounds of the longest run."""
    seeds: int
    """Maximum number of runs of a method."""
    is_timed: bool
    """Whether seconds were measured for some method."""
    results: ResultsTable
    legend: list[str]
    stability: list[str]
    own_rows: list[tuple[int, list[str]]]
    expulsions: list[Event]
    dropped: list[Event]
    settings: dict[str, str]
    """The settings that all runs have in common."""
    own_settings: list[dict[str, str]]
    versions: dict[str, str]
    script: dict[str, Any]
    """What the page's script draws, as plain data that are embedded in the page as JSON."""


def build_page_data(folders: Sequence[RunFolder], on_progress: ReportProgress = lambda *_: None) -> PageData:
    """Read runs and return everything that a report shows.

    Parameters
    ----------
    folders
        Runs of one dataset, finished or not; a folder that is named twice counts once.
    on_progress
        Called while records are read.

    Raises
    ------
    InvalidInput
        If a run cannot be read, or runs are of several datasets.
    """
    runs = read_runs(folders, on_progress)
    methods = group_by_method(runs)
    ordered = [(index, method, run) for index, method in enumerate(methods) for run in method.runs]
    settings, is_unequal = [run.settings for run in runs], any(map(has_unequal_work, runs))
    varied = varying_settings(settings)
    common = {name: value for name, value in settings[0].items() if name not in varied}
    partitions, partition_of = build_partitions([run for _, _, run in ordered])
    maps = [build_client_map(index, method, run, partition_of[run]) for index, method, run in ordered]
    results = build_run_results(methods)
    table = results_table(results)
    notes = [note for run in runs for note in run.summary["partition_notes"]]
    script = {
        "colours": {"light": ON_LIGHT, "dark": ON_DARK},
        "target": results.target,
        "measures": [dataclasses.asdict(measure) for measure in measures_of(runs)],
        "methods": [{"name": method.name, "curves": build_curves(method, is_unequal)} for method in methods],
        "tables": {suffix: format_table(table, name) for suffix, name in (("csv", "csv"), ("tex", "latex"))},
        "histograms": build_histograms(methods),
        "quantities": _quantities(maps),
        "runs": maps,
        "partitions": partitions,
    }
    return PageData(
        dataset=runs[0].config["dataset"],
        rounds=max(run.rounds for run in runs),
        seeds=max(len(method.runs) for method in methods),
        is_timed=any(is_timed(method) for method in methods),
        results=results,
        legend=explain_results(
            [row.summary for row in results.rows],
            rounds=common.get("rounds"),
            reference=results.reference,
            partition_notes=notes,
        ),
        stability=_stability(methods),
        own_rows=build_own_rows(methods),
        expulsions=[event for _, method, run in ordered for event in build_expulsions(method, run)],
        dropped=[event for _, method, run in ordered for event in build_dropped(method, run)],
        settings={name: format_setting(value) for name, value in common.items()},
        own_settings=[_own_settings(method, common) for method in methods],
        versions=_versions(runs),
        script=script,
    )


def _stability(methods: Sequence[MethodRuns]) -> list[str]:
    """Describe runs that swing, or in which the stability monitor warned."""
    finished = [(method, run) for method in methods for run in method.runs if run.is_finished]
    fedavg = {run.seed: run.summary for method, run in finished if method.name == "fedavg"}
    described = (
        describe_stability(method, run, swings=run.is_finished and swings(run.summary, fedavg.get(run.seed)))
        for method in methods
        for run in method.runs
    )
    return [sentence for sentence in described if sentence is not None]


def _quantities(maps: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the menu of the heat maps: quantities of uploads, and those diagnosed ones that some run has."""
    shown = {name for one in maps for name in one["values"]}
    return [
        {name: getattr(one, name) for name in ("name", "symbol", "title", "scale", "note")}
        for one in (*QUANTITIES, *DIAGNOSED)
        if one.name in shown
    ]


def _own_settings(method: MethodRuns, common: dict[str, Any]) -> dict[str, str]:
    """Return the settings that are not common to all methods, with the engines and the state of the runs."""
    own = method.runs[0].settings
    engines = dict.fromkeys(_engine(run) for run in method.runs)
    reasons = [(run.seed, run.summary["stopped"] or run.summary["ended_early"]) for run in method.runs]
    stops = dict.fromkeys(f"seed {seed}: {reason}" for seed, reason in reasons if reason)
    return {
        "method": method.name,
        "seeds": ", ".join(str(run.seed) for run in method.runs),
        "other settings": ", ".join(f"{name}={format_setting(own[name])}" for name in own if name not in common) or "–",
        "engine": "; ".join(engines),
        "state": "; ".join([method.status or "finished", *stops]),
    }


def _engine(run: RunData) -> str:
    ran_by = run.config.get("ran_by", {})
    name, reason = ran_by.get("engine", run.config.get("engine", "unknown")), ran_by.get("reason")
    stacks = f" (stacks of {pluralize(ran_by['chunk'], 'client')})" if "chunk" in ran_by else ""
    return f"{name}{stacks}: {reason}" if reason else f"{name}{stacks}"


def _versions(runs: Sequence[RunData]) -> dict[str, str]:
    return {
        name: ", ".join(sorted({version for run in runs for version in run.versions[name] or ["not recorded"]}))
        for name in runs[0].versions
    }
