"""How well final models serve each client: accuracies on clients' own samples, as histograms and as a table."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from fedtaco.records import ClientEvaluation
from fedtaco.records.evaluations import summarize_evaluations
from fedtaco.records.formatting import format_mean
from fedtaco.report.run_reader import RunData
from fedtaco.report.runs_by_method import MethodRuns

BINS = 20
"""Number of bars of a histogram, from an accuracy of 0 to 1."""
HEAD = ("method", "mean accuracy", "worst tenth", "worst client", "best client", "mean loss")
MODELS = {"": "global model", "tuned_": "fine-tuned"}
"""The evaluated models: prefix of the fields of :class:`ClientEvaluation`, and name."""


def build_histograms(methods: Sequence[MethodRuns]) -> list[dict[str, Any]]:
    """Return the number of clients by accuracy, over all seeds, for each method that was evaluated by client.

    Each entry contains the index of the method, the edges of the bars, and for each model its name and the numbers.
    """
    histograms = []
    for index, method in enumerate(methods):
        evaluations = [one for run in method.runs for one in run.evaluations]
        models = [
            {"name": name, "counts": np.histogram(accuracies, BINS, (0, 1))[0].tolist()}
            for prefix, name in MODELS.items()
            if (accuracies := _known(evaluations, f"{prefix}accuracy"))
        ]
        if models:
            histograms.append({"method": index, "models": models})
    return histograms


def _known(evaluations: Sequence[ClientEvaluation], field: str) -> list[float]:
    return [value for one in evaluations if (value := getattr(one, field)) is not None]


def build_own_rows(methods: Sequence[MethodRuns]) -> list[tuple[int, list[str]]]:
    """Return the rows of the table, each with the index of its method; figures are means over seeds.

    The worst and the best client are those of all seeds.
    """
    rows = []
    for index, method in enumerate(methods):
        runs = [run for run in method.runs if run.evaluations]
        for prefix, name in MODELS.items():
            if any(_known(run.evaluations, f"{prefix}loss") for run in runs):
                title = method.name if prefix == "" else f"{method.name}, {name}"
                rows.append((index, [title, *_figures(method, runs, prefix)]))
    return rows


def _figures(method: MethodRuns, runs: Sequence[RunData], prefix: str) -> list[str]:
    summaries = [summarize_evaluations(run.evaluations) or {} for run in runs]
    spreads = [own for summary in summaries if (own := summary[f"{prefix}accuracy"]) is not None]
    losses = [loss for summary in summaries if (loss := summary[f"{prefix}loss"]) is not None]
    means = [_percent(_mean([own[name] for own in spreads])) for name in ("mean", "worst_tenth")]
    extremes = [_extreme(method, runs, f"{prefix}accuracy", choose) for choose in (min, max)]
    return [*means, *extremes, format_mean(_mean(losses), digits=3)]


def _extreme(method: MethodRuns, runs: Sequence[RunData], field: str, choose: Callable[..., Any]) -> str:
    """Return the lowest or highest accuracy of a client, and which client of which seed it is."""
    known = [(run, one) for run in runs for one in run.evaluations if getattr(one, field) is not None]
    if not known:
        return "–"
    run, extreme = choose(known, key=lambda entry: getattr(entry[1], field))
    seed = f", {method.seed_name(run)}" if len(runs) > 1 else ""
    return f"{_percent(getattr(extreme, field))} (client {extreme.client}{seed})"


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else f"{format_mean(fraction, scale=100)} %"
