"""List expelled clients and dropped uploads, with the reasons, and runs that swing or are about to."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedtaco.records.formatting import pluralize
from fedtaco.records.swings import first_swing
from fedtaco.report.run_reader import RunData
from fedtaco.report.runs_by_method import MethodRuns


@dataclass(frozen=True)
class Event:
    """An expulsion or dropped uploads of a client in a run."""

    run: str
    """Method and seed, such as "taco, seed 0"."""
    client: int
    text: str


def build_expulsions(method: MethodRuns, run: RunData) -> list[Event]:
    """Return one event per expelled client, sorted by round."""
    decisions = [decision for record in run.history for decision in record.decisions]
    reasons = {decision.client: decision for decision in decisions if decision.action == "expelled"}
    freeloaders = run.partition.freeloaders
    events = []
    for client, line in sorted(run.heat.expelled.items(), key=lambda item: (item[1]["round"], item[0])):
        text = f"Client {client}, after round {line['round']}: {pluralize(line['strikes'], 'strike')}"
        if why := reasons.get(client):
            text += f"; {why.reason} ({why.test} {why.score:.2g}, threshold {why.threshold:.2g})"
        kind = "" if not freeloaders else " A freeloader." if client in freeloaders else " Not a freeloader."
        events.append(Event(method.run_name(run), client, f"{text}.{kind}"))
    return events


def build_dropped(method: MethodRuns, run: RunData) -> list[Event]:
    """Return one event per client and reason, with the rounds in which its uploads were dropped for that reason."""
    rounds_of: dict[tuple[int, str], list[int]] = {}
    for record in run.history:
        for client, reason in record.dropped.items():
            rounds_of.setdefault((client, reason), []).append(record.round)
    return [
        Event(method.run_name(run), client, f"Client {client}, {_format_rounds(rounds)}: {reason}.")
        for (client, reason), rounds in sorted(rounds_of.items())
    ]


def describe_stability(method: MethodRuns, run: RunData, *, swings: bool) -> str | None:
    """Describe when the stability monitor warned, and whether the run swings; ``None`` if neither."""
    warned = [record for record in run.history if record.warning is not None]
    sentences = []
    if warned:
        others = len(warned) - 1
        more = f" The warning was repeated in {pluralize(others, 'round')}." if others else ""
        sentences.append(f"After round {warned[0].round}, {warned[0].warning}.{more}")
    if swings:
        points, first = 100 * run.summary["last_ten_range"], first_swing(run.history)
        since = "" if first is None else f" from round {first} on"
        sentences.append(
            f"The accuracy swings{since}; its range over the last ten rounds is {points:.1f} percentage points."
        )
    return f"{method.run_name(run)}: {' '.join(sentences)}" if sentences else None


def _format_rounds(rounds: Sequence[int]) -> str:
    listed = ", ".join(map(str, rounds[:8]))
    more = f" and {len(rounds) - 8} more" if len(rounds) > 8 else ""
    return f"round{'' if len(rounds) == 1 else 's'} {listed}{more}"
