"""The legend of a results table, for both the HTML page and the terminal."""

from collections.abc import Iterable, Iterator, Sequence

from fedtaco.records import MISSED_DEADLINE, NO_ANSWER
from fedtaco.records.formatting import format_mean, pluralize
from fedtaco.records.method_summary import MethodSummary, is_unbalanced, shows_traffic


def explain_results(
    summaries: Sequence[MethodSummary],
    *,
    rounds: int | None = None,
    reference: str | None = None,
    partition_notes: Iterable[str] = (),
) -> list[str]:
    """Return sentences that explain the columns and marks of a results table, and what happened in the runs.

    Parameters
    ----------
    summaries
        The rows of the table.
    rounds
        Number of rounds, if all runs have the same.
    reference
        Method that the others are compared with; ``None`` if the table has no such column.
    partition_notes
        Remarks on the partition, as run summaries contain them; repeated ones are given once.

    Returns
    -------
    list of str
        One sentence per column, mark and method with events; only what the table shows is explained.
    """
    marks = " ".join(row.rounds_mark for row in summaries)
    groups = {group for row in summaries for group in row.alpha}
    timed = any(row.client_seconds is not None for row in summaries)
    seeds = max((row.seeds for row in summaries), default=0)
    over_seeds = f", mean ± standard deviation over {seeds} seeds" if seeds > 1 else ""
    partly = any(0 < row.stopped < row.seeds for row in summaries)
    last = "the last round" if rounds is None else pluralize(rounds, "round")
    sentences = {
        f"Final accuracy: on the test set in %, after {last}{over_seeds}.": True,
        "Clients keep personal layers, so that each has a model of its own: accuracies are means over the honest "
        "clients.": any(row.has_personal_layers for row in summaries),
        f"Difference to {reference}: in percentage points, over the seeds that both methods finished, with the 95 % "
        "confidence interval of its mean in brackets.": reference is not None,
        "Worst tenth: mean accuracy of the tenth of the clients with the lowest accuracy, each by its own mix of "
        "labels.": not all(row.has_personal_layers for row in summaries),
        "↕: the accuracy swings: its range over the last ten rounds is more than three times that of FedAvg with the "
        "same seed or, without FedAvg, more than 3 percentage points, up and down.": any(
            row.swinging for row in summaries
        ),
        "N+: the target was not reached within N rounds.": "+" in marks,
        "≤ N: not every round was evaluated, so that the target may have been reached before.": "≤" in marks,
        "↓: a run ended below nine tenths of the target.": "↓" in marks,
        f"×: a run diverged or could not continue{'; it is not in the means' if partly else ''}.": "×" in marks,
        "Client seconds: compute time of each round's slowest client, summed over rounds; they are comparable only if "
        "runs do not compete for the processor, as with the engine serial.": timed,
        "MB up, MB down: megabytes that all clients together send and receive in a run.": shows_traffic(summaries),
        "α: TACO's coefficient, mean over clients and rounds; the larger, the more an upload agrees with the "
        "others.": bool(groups),
        "A, B, C: groups of clients, from few labels (A) to many (C).": groups >= {"A", "B", "C"},
    }
    events = [f"{row.method}: {'; '.join(own)}." for row in summaries if (own := list(_events(row)))]
    explained = [text for text, applies in sentences.items() if applies]
    return [*explained, *_samples(summaries), *_balanced(summaries), *events, *sorted(set(partition_notes))]


def _samples(summaries: Sequence[MethodSummary]) -> Iterator[str]:
    for evaluated, test_samples in sorted({row.samples for row in summaries if row.samples is not None}):
        yield f"Accuracy is measured on {evaluated:,} of the {test_samples:,} test samples."


def _events(row: MethodSummary) -> Iterator[str]:
    if row.own_accuracy is not None:
        tuned = ""
        if row.tuned_accuracy is not None:
            tuned = f", after fine-tuning {_own_accuracy(row.tuned_accuracy, row.tuned_worst_tenth)}"
        own = _own_accuracy(row.own_accuracy, row.own_worst_tenth)
        yield f"on the clients' own held-out samples, the mean accuracy is {own}{tuned}"
    if row.output_accuracy is not None:
        yield f"the model that it returns has an accuracy of {format_mean(row.output_accuracy, scale=100)} %"
    if row.ended_early:
        yield f"a callback ended {row.ended_early} of {pluralize(row.seeds, 'seed')} before the last round"
    if row.swinging:
        seeds = "" if row.seeds == 1 else f" in {row.swinging} of {row.seeds} seeds"
        yield f"the accuracy swings{seeds}, and the best round has {format_mean(row.best_accuracy, scale=100)} %"
    if row.average_accuracy is not None:
        yield f"the average of the last models has an accuracy of {format_mean(row.average_accuracy, scale=100)} %"
    if row.freeloaders:
        caught = f"{row.caught} of {pluralize(row.freeloaders, 'misbehaving client')}"
        yield f"{caught} and {pluralize(row.honest_expelled, 'honest client')} were expelled"
    elif row.honest_expelled:
        yield f"{pluralize(row.honest_expelled, 'client')} {_was(row.honest_expelled)} expelled"
    if row.dropped_uploads:
        yield _dropped(row)


def _dropped(row: MethodSummary) -> str:
    text = f"{pluralize(row.dropped_uploads, 'upload')} {_was(row.dropped_uploads)} dropped"
    counts = {NO_ANSWER: row.unanswered, MISSED_DEADLINE: row.missed_deadlines}
    reasons = [f"{count:,} because the client {reason}" for reason, count in counts.items() if count]
    for reason, count in counts.items():
        if count == row.dropped_uploads:
            return f"{text} because the client {reason}"
    return f"{text}, {' and '.join(reasons)}" if reasons else text


def _own_accuracy(mean: float, worst: float | None) -> str:
    return f"{format_mean(mean, scale=100)} % (worst tenth {format_mean(worst, scale=100)} %)"


def _balanced(summaries: Sequence[MethodSummary]) -> Iterator[str]:
    """State balanced accuracies and the accuracy of a constant prediction, if classes differ much in size."""
    if not any(is_unbalanced(row) for row in summaries):
        return
    rows = [row for row in summaries if row.balanced_accuracy is not None]
    means = ", ".join(f"{row.method} {format_mean(row.balanced_accuracy, scale=100)} %" for row in rows)
    yield f"Balanced accuracy, the mean over classes: {means}."
    for share in sorted({row.majority_share for row in rows if row.majority_share is not None})[:1]:
        yield f"Always predicting the most frequent class would give an accuracy of {format_mean(share, scale=100)} %."


def _was(number: int) -> str:
    return "was" if number == 1 else "were"
