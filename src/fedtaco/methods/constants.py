"""The numbers that appear in the formulas of methods: N, T, K, the learning rates, and how clients take steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedtaco.local_optimizer import PLAIN_SGD, LocalOptimizer
from fedtaco.lr_schedule import CONSTANT, LrSchedule


@dataclass(frozen=True)
class Constants:
    """The constants of a run, or of one of its rounds: N, T, K, and the learning rates of clients and server."""

    clients: int
    """Number of clients N; in ``Uploads``, of those not expelled before the round."""
    rounds: int
    local_steps: int
    """K; the largest number of steps if clients take different numbers of steps."""
    local_lr: float
    """The rate of the first round; in a round, the rate of that round."""
    server_lr: float | None = None
    """``None`` stands for the paper's K * local_lr: the server applies the clients' mean update unscaled."""
    optimizer: LocalOptimizer = PLAIN_SGD
    lr_schedule: LrSchedule = CONSTANT
    round: int = 0
    """Number of the round, from 1; 0 in the constants of a run."""

    def relaxation(self, steps: float) -> float:
        """Return server_lr / (steps * local_lr), the factor by which the server scales an update; 1 by default."""
        if self.server_lr is None or self.local_lr == 0:
            return 1.0
        return self.server_lr / (steps * self.local_lr)

    def in_round(self, number: int) -> Constants:
        """Return the constants of a round of this run.

        Both rates follow the schedule, so that their ratio, the server's relaxation, stays the same. After the last
        round, when models are fine-tuned for clients, they are those of the first round.

        >>> from fedtaco.lr_schedule import parse_schedule
        >>> run = Constants(clients=5, rounds=10, local_steps=3, local_lr=0.1, lr_schedule=parse_schedule("step:4,0.5"))
        >>> run.in_round(4).local_lr, run.in_round(5).local_lr, run.in_round(11).local_lr
        (0.1, 0.05, 0.1)
        """
        if self.round:
            raise ValueError(f"These are already the constants of round {self.round}.")
        factor = self.lr_schedule.factor(number, self.rounds) if number <= self.rounds else 1.0
        server_lr = None if self.server_lr is None else factor * self.server_lr
        return replace(self, local_lr=factor * self.local_lr, server_lr=server_lr, round=number)
