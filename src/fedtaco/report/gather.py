"""From run folders to what a report shows, as plain data of bounded size."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from fedtaco.errors import InvalidInput
from fedtaco.records import RunFolder
from fedtaco.report.heat import Columns, Floats, rounded
from fedtaco.report.paired import paired_differences
from fedtaco.report.runs import MEASURES, Run, Series, as_series, read_run, shown, varying
from fedtaco.report.summary import as_count, compare_runs

SIDE = 120
"""The most rows and columns of a heat map."""
CELLS = 25 * SIDE**2
"""What the heat maps of all runs may hold together; with more runs each is drawn coarser."""
POINTS = 500
"""The most points of a curve."""

Data = dict[str, Any]
Tell = Callable[[int, int], None]


def quietly(done: int, total: int) -> None:
    """Tells nobody how many of all rounds are read."""


def gather(folders: Sequence[RunFolder], tell: Tell = quietly) -> Data:
    """All that a report shows; ``tell`` hears how many of all rounds are read."""
    runs = _read(folders, tell)
    series = as_series(runs)
    ordered = [run for own in series for run in own.runs]
    common = _common(runs)
    partitions, partition_of = _partitions(ordered)
    return {
        "dataset": runs[0].config["dataset"],
        "target": common.get("target"),
        "rounds": max(run.rounds for run in runs),
        "seeds": max(len(own.runs) for own in series),
        "clients": common.get("clients"),
        "partition": common.get("partition"),
        "methods": [{"name": own.name, "curves": _curves(own)} for own in series],
        "timed": any(_is_timed(own) for own in series),
        **_results(series),
        "notes": sorted({note for run in runs for note in run.summary["partition_notes"]}),
        "partitions": partitions,
        "runs": [_picture(place, own, run, partition_of[run]) for place, own in enumerate(series) for run in own.runs],
        "detections": [event for own in series for run in own.runs for event in _detections(own, run)],
        "dropped": [event for own in series for run in own.runs for event in _dropped(own, run)],
        "settings": {name: shown(value) for name, value in common.items()},
        "own_settings": [_own_settings(own, common) for own in series],
        "versions": _versions(runs),
    }


def _read(folders: Sequence[RunFolder], tell: Tell) -> list[Run]:
    distinct = {folder.path.resolve(): folder for folder in folders}.values()
    configs = [folder.config() for folder in distinct]
    datasets = sorted({str(config.get("dataset")) for config in configs})
    if len(datasets) > 1:
        raise InvalidInput(f"The runs are of the datasets {', '.join(datasets)}; a report shows one: name its runs.")
    side = max(SIDE // 5, min(SIDE, math.isqrt(CELLS // len(configs))))
    total, before, runs = sum(config.get("rounds", 0) for config in configs), 0, []
    for folder in distinct:
        runs.append(read_run(folder, side, partial(_tell_of_all, tell, before, total)))
        before += runs[-1].config["rounds"]
    return runs


def _tell_of_all(tell: Tell, before: int, total: int, done: int) -> None:
    tell(before + done, total)


def _common(runs: Sequence[Run]) -> Data:
    settings = [run.settings for run in runs]
    varied = set(varying(settings))
    return {name: value for name, value in settings[0].items() if name not in varied}


# Curves


def _is_timed(series: Series) -> bool:
    return all(run.rounds and np.isfinite(run.seconds).all() for run in series.runs)


def _curves(series: Series) -> Data:
    """For each measure: mean, lowest and highest over the seeds that got that far, over rounds and seconds."""
    seconds = np.cumsum(_over_seeds(np.nanmean, [run.seconds for run in series.runs])) if _is_timed(series) else None
    curves = {}
    for measure in MEASURES:
        measured = [run.measures[measure] for run in series.runs]
        mean = _over_seeds(np.nanmean, measured)
        places = np.flatnonzero(np.isfinite(mean))
        if len(places) == 0:
            continue
        places = places[np.unique(np.linspace(0, len(places) - 1, POINTS).round().astype(int))]
        low, high = (_over_seeds(function, measured) for function in (np.nanmin, np.nanmax))
        curves[measure] = {
            "rounds": (places + 1).tolist(),
            "seconds": None if seconds is None else _numbers(seconds[places]),
            "mean": _numbers(mean[places]),
            "low": _numbers(low[places]),
            "high": _numbers(high[places]),
            "seeds": [sum(len(own) > place for own in measured) for place in places.tolist()],
        }
    return curves


def _over_seeds(function: Callable[..., Floats], columns: Sequence[Floats]) -> Floats:
    """A number a round from columns of unequal lengths; nan where none has one."""
    table = np.full((len(columns), max(map(len, columns))), np.nan)
    for row, column in zip(table, columns, strict=True):
        row[: len(column)] = column
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return function(table, axis=0)


def _numbers(values: Floats) -> list[float | None]:
    return rounded(values[None])[0]


# The table


def _results(series: Sequence[Series]) -> Data:
    """A row a method, with its difference to the reference, which is FedAvg where there is one, else the first."""
    reference = next((own for own in series if own.runs[0].config["method"] == "fedavg"), series[0])
    finished = [{**run.summary, "method": own.name} for own in series for run in own.runs if run.finished]
    differences = paired_differences(finished, reference.name)
    rows = [{**_result(own), "difference": differences.get(own.name)} for own in series]
    return {"results": rows, "reference": reference.name if differences else None}


def _result(series: Series) -> Data:
    """A row of the results: of the finished runs, or of what there is while none has finished."""
    finished = [run for run in series.runs if run.finished]
    counted = finished or [run for run in series.runs if run.summary["final_accuracy"] is not None]
    status = _status(series)
    if not counted:
        return {"method": series.name, "status": status, "alpha": {}}
    (row,) = compare_runs([{**run.summary, "method": series.name} for run in counted])
    result = {**dataclasses.asdict(row), "status": status}
    if not finished and not row.reached_target:
        result["rounds_to_target"] = "–"
    return result


def _status(series: Series) -> str:
    """What keeps a method's figures from being those of finished runs, in a few words."""
    unfinished, seeds = series.unfinished, len(series.runs)
    parts = []
    if len(unfinished) == seeds:
        done = fmean(run.rounds for run in unfinished)
        parts.append(f"unfinished, {as_count(done)} of {unfinished[0].config['rounds']} rounds")
    elif unfinished:
        parts.append(f"{len(unfinished)} of {seeds} seeds unfinished")
    stopped = sum(run.summary["stopped"] is not None for run in series.runs)
    if stopped:
        parts.append("stopped early" if seeds == 1 else f"{stopped} of {seeds} seeds stopped early")
    return "; ".join(parts)


# Clients


def _partitions(runs: Sequence[Run]) -> tuple[list[Data], dict[Run, int]]:
    """Each different partition drawn once, and which of them each run has."""
    known: dict[tuple[bytes, tuple[str, ...]], int] = {}
    drawn: list[Data] = []
    partition_of = {}
    for run in runs:
        key = run.split.label_counts.tobytes(), tuple(run.split.groups or ())
        if key not in known:
            known[key] = len(drawn)
            drawn.append(_partition(run))
        partition_of[run] = known[key]
    return drawn, partition_of


def _partition(run: Run) -> Data:
    rows, counts = run.heat.rows, run.split.label_counts
    labels = Columns(counts.shape[1], run.heat.columns.limit)
    means = np.add.reduceat(rows.mean(counts), labels.starts, axis=1)
    return {
        "name": f"{run.config['partition']}, {len(counts):,} clients, seed {run.seed}",
        "clients": len(counts),
        "rows": rows.names,
        "groups": rows.groups,
        "labels": labels.names(first=0),
        "counts": rounded(means),
    }


def _picture(place: int, series: Series, run: Run, partition: int) -> Data:
    """The heat maps of one run."""
    rows = run.heat.rows.of_client
    return {
        "method": place,
        "name": _run_name(series, run),
        "partition": partition,
        "rounds": run.rounds,
        "columns": run.heat.columns.names(first=1),
        "width": run.heat.columns.width,
        "grids": run.heat.grids(),
        "expelled": sorted({int(rows[client]) for client in run.heat.expelled}),
        "freeloaders": sorted({int(rows[client]) for client in run.split.freeloaders}),
    }


def _run_name(series: Series, run: Run) -> str:
    seeds = [other.seed for other in series.runs]
    repeated = f", run {series.runs.index(run) + 1}" if seeds.count(run.seed) > 1 else ""
    return f"seed {run.seed}{repeated}"


# Events


def _detections(series: Series, run: Run) -> list[Data]:
    known = set(run.split.freeloaders)
    return [
        {
            "method": series.name,
            "run": _run_name(series, run),
            "client": client,
            "round": line["round"],
            "reason": _reason(run, client, line),
            "freeloader": client in known if known else None,
        }
        for client, line in sorted(run.heat.expelled.items(), key=lambda item: (item[1]["round"], item[0]))
    ]


def _reason(run: Run, client: int, line: Any) -> str:
    strikes = f"{line['strikes']} strike{'' if line['strikes'] == 1 else 's'}"
    if client not in run.expulsions:
        return strikes
    decision = run.expulsions[client]
    return f"{strikes}; {decision.reason} ({decision.test} {decision.score:.2g}, threshold {decision.threshold:.2g})"


def _dropped(series: Series, run: Run) -> list[Data]:
    """The uploads that were left out, those of a client for one reason together."""
    gathered: dict[tuple[int, str], list[int]] = {}
    for round_number, client, reason in run.dropped:
        gathered.setdefault((client, reason), []).append(round_number)
    return [
        {"method": series.name, "run": _run_name(series, run), "client": client, "rounds": rounds, "reason": reason}
        for (client, reason), rounds in sorted(gathered.items())
    ]


# Settings


def _own_settings(series: Series, common: Data) -> Data:
    own = series.runs[0].settings
    engines = dict.fromkeys(_engine(run) for run in series.runs)
    stops = dict.fromkeys(f"seed {run.seed}: {run.summary['stopped']}" for run in series.runs if run.summary["stopped"])
    return {
        "method": series.name,
        "seeds": ", ".join(str(run.seed) for run in series.runs),
        "settings": ", ".join(f"{name}={shown(value)}" for name, value in own.items() if name not in common),
        "engine": "; ".join(engines),
        "status": " ".join([_status(series) or "finished", *stops]),
    }


def _versions(runs: Sequence[Run]) -> dict[str, str]:
    """What made the runs, each version once."""
    return {
        name: ", ".join(sorted({version for run in runs for version in run.versions[name] or ["not recorded"]}))
        for name in runs[0].versions
    }


def _engine(run: Run) -> str:
    ran_by = run.config.get("ran_by", {})
    name, reason = ran_by.get("engine", run.config.get("engine", "unknown")), ran_by.get("reason")
    stacks = f" (stacks of {ran_by['chunk']} clients)" if "chunk" in ran_by else ""
    return f"{name}{stacks}: {reason}" if reason else f"{name}{stacks}"
