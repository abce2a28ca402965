"""Collect everything that a report shows, as plain data of bounded size."""

import dataclasses
from collections.abc import Sequence
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
from fedtaco.report.events import build_dropped, build_expulsions, describe_stability
from fedtaco.report.legend import explain_results
from fedtaco.report.own_samples import build_histograms, build_own_rows
from fedtaco.report.results import build_run_results
from fedtaco.report.run_reader import ReportProgress, RunData, read_runs
from fedtaco.report.runs_by_method import MethodRuns, format_setting, group_by_method, varying_settings
from fedtaco.report.table_formats import format_table, results_table

PageData = dict[str, Any]


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
    return {
        "dataset": runs[0].config["dataset"],
        "target": results.target,
        "rounds": max(run.rounds for run in runs),
        "seeds": max(len(method.runs) for method in methods),
        "clients": common.get("clients"),
        "partition": common.get("partition"),
        "colours": {"light": ON_LIGHT, "dark": ON_DARK},
        "measures": [dataclasses.asdict(measure) for measure in measures_of(runs)],
        "methods": [{"name": method.name, "curves": build_curves(method, is_unequal)} for method in methods],
        "timed": any(is_timed(method) for method in methods),
        "results": results,
        "tables": {suffix: format_table(table, name) for suffix, name in (("csv", "csv"), ("tex", "latex"))},
        "legend": explain_results(
            [row.summary for row in results.rows],
            rounds=common.get("rounds"),
            reference=results.reference,
            partition_notes=notes,
        ),
        "quantities": _quantities(maps),
        "partitions": partitions,
        "runs": maps,
        "stability": _stability(methods),
        "histograms": build_histograms(methods),
        "own_rows": build_own_rows(methods),
        "expulsions": [event for _, method, run in ordered for event in build_expulsions(method, run)],
        "dropped": [event for _, method, run in ordered for event in build_dropped(method, run)],
        "settings": {name: format_setting(value) for name, value in common.items()},
        "own_settings": [_own_settings(method, common) for method in methods],
        "versions": _versions(runs),
    }


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
