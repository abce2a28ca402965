"""What a comparison shows, in a few sentences that claim no more than the seeds support."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedtaco.records.formatting import format_mean
from fedtaco.records.method_summary import MethodSummary
from fedtaco.report.differences import accuracies_by_seed, paired_differences

LISTED = 12
"""Maximum number of methods that a sentence names, as there may be many settings of a sweep."""


def describe_results(methods: Sequence[MethodSummary], summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sentences on which methods end highest, diverged, swing, predict one class only, or over-correct clients.

    The method with the highest mean accuracy is compared with each of the others, over the seeds that both finished. If
    the 95 % confidence interval of the difference includes 0, the sentence says that there is no difference beyond seed
    noise. One seed is called one seed.

    Parameters
    ----------
    methods
        Methods with finished runs, each over its seeds.
    summaries
        Summaries of these runs.
    """
    tested = sorted((row for row in methods if row.accuracy is not None), key=_accuracy, reverse=True)
    return [*(_ranking(tested, summaries) if tested else ()), *_events(methods), *_over_corrections(summaries)]


def _accuracy(row: MethodSummary) -> float:
    return row.accuracy or 0.0


def _ranking(tested: Sequence[MethodSummary], summaries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    best, *others = tested
    accuracy = f"{format_mean(best.accuracy, best.accuracy_deviation, scale=100)} %"
    leaders = [row.method for row in tested if row.accuracy == best.accuracy]
    seeds = {seed for own in accuracies_by_seed(summaries).values() for seed in own}
    differences = paired_differences(summaries, best.method)
    compared = [row.method for row in others if row.method in differences]
    tied = [method for method in compared if differences[method].includes_zero]
    if not others:
        yield f"{best.method} ends at {accuracy} test accuracy{' in one seed' if len(seeds) == 1 else ''}."
    elif len(seeds) == 1:
        place = (
            f"{leaders[0]} is highest" if len(leaders) == 1 else f"{join_names(leaders)} are tied for the highest place"
        )
        yield f"{place} in this one seed, at {accuracy} test accuracy; one seed does not show that methods differ."
    elif not compared:
        yield f"{_highest(leaders, accuracy)}, with fewer than two seeds in common with the others."
    elif tied:
        yield f"No difference beyond seed noise between {join_names([best.method, *tied])}."
        yield f"{_highest(leaders, accuracy)}."
    else:
        lead = -differences[compared[0]]
        yield f"{best.method} ends highest, at {accuracy} test accuracy, {lead} percentage points above {compared[0]}."
    if compared and len(compared) < len(others):
        left_out = join_names([row.method for row in others if row.method not in differences])
        yield f"Not compared, with fewer than two seeds in common with {best.method}: {left_out}."


def _highest(leaders: Sequence[str], accuracy: str) -> str:
    have = "has" if len(leaders) == 1 else "have"
    return f"{join_names(leaders)} {have} the highest mean test accuracy, {accuracy}"


def _events(methods: Sequence[MethodSummary]) -> list[str]:
    """Describe failures; methods with the same failure share a sentence."""
    failed: dict[tuple[str, str], list[str]] = {}
    for row in methods:
        if row.stopped:
            ending = f"diverged{_in_seeds(row.stopped, row.seeds)}"
            failed.setdefault((ending, ending), []).append(row.method)
        if row.swinging:
            ending = _in_seeds(row.swinging, row.seeds)
            failed.setdefault((f"swings{ending}", f"swing{ending}"), []).append(row.method)
        if row.one_class:
            ending = f"one class only{_in_seeds(row.one_class, row.seeds)}"
            failed.setdefault((f"predicts {ending}", f"predict {ending}"), []).append(row.method)
    return [f"{join_names(names)} {one if len(names) == 1 else many}." for (one, many), names in failed.items()]


def _over_corrections(summaries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say for each diagnosed method whether its correction is too strong, for clients and for the global model."""
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for summary in summaries:
        if summary.get("over_correction") is not None:
            by_method.setdefault(summary["method"], []).append(summary["over_correction"])
    for method, runs in by_method.items():
        clients, measured, rounds, too_far = (
            sum(run[name] for run in runs) for name in ("measured_clients", "measured", "measured_rounds", "rounds")
        )
        if not measured and not rounds:
            yield f"{method} corrects nothing."
            continue
        count = sum(len(run["clients"]) for run in runs)
        number = f"all {clients}" if count == clients else f"{count or 'none'} of {clients}"
        is_listed = 0 < count < clients and len(runs) == 1
        names = f" (clients {join_names([str(one) for one in runs[0]['clients']])})" if is_listed else ""
        found = [f"for {number} clients in most rounds{names}"] if measured else []
        found += [f"for the global model in {too_far} of {rounds} rounds"] if rounds else []
        is_too_strong = 2 * too_far > rounds if rounds else 2 * count > clients
        advice = "try a weaker one" if is_too_strong else "it need not be weaker"
        yield f"The correction of {method} goes too far {' and '.join(found)}; {advice}."


def _in_seeds(count: int, seeds: int) -> str:
    return "" if count == seeds else f" in {count} of {seeds} seeds"


def join_names(names: Sequence[str]) -> str:
    """Join names as in a sentence.

    >>> join_names(["taco", "stem", "fedavg"])
    'taco, stem and fedavg'
    """
    if len(names) > LISTED:
        names = [*names[:LISTED], f"{len(names) - LISTED} more"]
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
