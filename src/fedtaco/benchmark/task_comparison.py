"""Compare the methods of a benchmark on one task, seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median_low

from fedtaco.benchmark.record import EntryRecord, RunRecord, TaskRecord
from fedtaco.report.differences import Difference, confidence_interval, correct_by_holm, paired_p_value

SIGNIFICANT = 0.05
"""A difference is significant if its corrected p-value is at most this."""
SWING_BASELINE = "fedavg"
"""Other methods swing if their range is much larger than that of this method."""


@dataclass(frozen=True)
class RoundsToTarget:
    """How soon the runs of a method reach the target, also compared with the reference seed by seed."""

    median: int | None
    """The lower median over the seeds; ``None`` if less than half of them reach the target."""
    reached: int
    earlier: int
    """Number of seeds with which the target is reached before the reference does, or only by this method."""
    later: int
    same: int
    """Number of seeds with which both reach it in the same round, or neither does."""


class TaskComparison:
    """The evaluated methods of a task, compared with a reference.

    Parameters
    ----------
    task
        The results.
    reference
        Name of the method to which the others are compared.
    """

    def __init__(self, task: TaskRecord, reference: str) -> None:
        self.task, self.reference = task, reference
        self.entries = [entry for entry in task.entries if entry.evaluation]

    @cached_property
    def accuracies(self) -> dict[str, dict[int, float]]:
        """The primary figure of each run, by name and seed: the mean accuracy of its last ten rounds."""
        return {entry.name: {run.seed: run.late_accuracy for run in entry.evaluation} for entry in self.entries}

    @cached_property
    def curves(self) -> dict[str, list[list[float]]]:
        """The accuracies after each round of the runs of each method; without runs that diverged in the first round."""
        runs = {entry.name: [run.accuracy for run in entry.evaluation if run.accuracy] for entry in self.entries}
        return {name: own for name, own in runs.items() if own}

    @property
    def seeds(self) -> list[int]:
        """The seeds of the evaluation."""
        return sorted({run.seed for entry in self.entries for run in entry.evaluation})

    @cached_property
    def ranking(self) -> list[str]:
        """The names, the one with the highest mean accuracy first."""
        return sorted(self.accuracies, key=lambda name: -fmean(self.accuracies[name].values()))

    def best_other(self, name: str) -> str | None:
        """Return the method that is best without this one; ``None`` if there is no other."""
        return next((other for other in self.ranking if other != name), None)

    def difference(self, name: str, other: str | None) -> Difference | None:
        """Return the mean difference of two methods; ``None`` if they have fewer than two seeds in common."""
        values = self._paired(name, other)
        return confidence_interval(values) if len(values) > 1 else None

    @cached_property
    def p_values(self) -> dict[str, float]:
        """The p-value of each method's difference to the reference, corrected by Holm's method for their number.

        Methods with fewer than two seeds in common with the reference have none.
        """
        paired = {name: self._paired(name, self.reference) for name in self.accuracies if name != self.reference}
        tested = {name: paired_p_value(values) for name, values in paired.items() if len(values) > 1}
        return dict(zip(tested, correct_by_holm(list(tested.values())), strict=True))

    @property
    def significantly_above(self) -> list[str]:
        """The methods that are significantly above the reference, the one with the highest mean accuracy first."""
        return [name for name in self._significant if fmean(self._paired(name, self.reference)) > 0]

    @property
    def significantly_below(self) -> list[str]:
        """The methods that are significantly below the reference, in the same order."""
        return [name for name in self._significant if fmean(self._paired(name, self.reference)) < 0]

    @property
    def _significant(self) -> list[str]:
        return [name for name in self.ranking if self.p_values.get(name, 1.0) <= SIGNIFICANT]

    @property
    def rounds(self) -> int:
        """Number of rounds of a run that does not diverge."""
        return int(self.task.settings["rounds"])

    def first_rounds(self, runs: Iterable[RunRecord]) -> dict[int, int]:
        """Return the round in which each run reaches the target, by seed; one more than all rounds if it does not."""
        return {run.seed: run.rounds_to(self.task.target) or self.rounds + 1 for run in runs}

    def rounds_to_target(self, entry: EntryRecord) -> RoundsToTarget:
        """Return how soon a method reaches the target; a run that does not counts as later than one that does."""
        never = self.rounds + 1
        own = self.first_rounds(entry.evaluation)
        others = self.first_rounds(self._runs_of(self.reference).values())
        pairs = [(own[seed], others[seed]) for seed in own if seed in others]
        median = median_low(own.values())
        return RoundsToTarget(
            median=None if median == never else median,
            reached=sum(rounds < never for rounds in own.values()),
            earlier=sum(mine < other for mine, other in pairs),
            later=sum(mine > other for mine, other in pairs),
            same=sum(mine == other for mine, other in pairs),
        )

    def is_paired(self, name: str) -> bool:
        """Return whether a method is another one than the reference, and both were evaluated with a common seed."""
        return name != self.reference and bool(self._paired(name, self.reference))

    def count_swings(self, entry: EntryRecord) -> int:
        """Return the number of runs that swing: by comparison with FedAvg, if it was evaluated with the same seed."""
        partners = {} if entry.name == SWING_BASELINE else self._runs_of(SWING_BASELINE)
        return sum(run.swings(partners.get(run.seed)) for run in entry.evaluation)

    def _paired(self, name: str, other: str | None) -> list[float]:
        own, others = self.accuracies[name], self.accuracies.get(other or "", {})
        return [own[seed] - others[seed] for seed in own if seed in others]

    def _runs_of(self, name: str) -> Mapping[int, RunRecord]:
        return {run.seed: run for entry in self.entries if entry.name == name for run in entry.evaluation}
