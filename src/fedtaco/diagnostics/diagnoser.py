"""Diagnose rounds: the quantities of the paper's analysis, and the over-correction index of each client.

The training of each honest client is repeated, one client after another, with the same batches. This and the gradients
of the global loss, two per client and four per round, are not part of any measured time.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from fedtaco.client import ClientRunner
from fedtaco.cohort import ClientJob, Instructions, normalize
from fedtaco.diagnostics.global_loss import GlobalLoss
from fedtaco.diagnostics.over_correction import index_of_move
from fedtaco.diagnostics.theory import lemma_1_residual, lemma_2_residual, relative_norm, round_momentum
from fedtaco.diagnostics.trajectory import Trajectory, trace_client
from fedtaco.errors import InvalidInput
from fedtaco.methods import Constants, Method, TacoCorrection
from fedtaco.records import finite_or_none
from fedtaco.records.diagnostics import ClientDiagnostics, RoundDiagnostics
from fedtaco.run_state import RoundOutcome, RunState
from fedtaco.uploads import weighted_sum

Gradient = Callable[[Tensor], Tensor]
"""Returns the gradient of the global loss at a point."""


@dataclass(frozen=True)
class Training:
    """What the clients of a round that answered were asked to do in one phase."""

    before: RunState
    """The state before the round."""
    instructions: Instructions
    """Their instructions, with one entry per job in each of the broadcast's scalars."""
    jobs: Sequence[ClientJob]


class Diagnoser:
    """Diagnoses the rounds of a run; nothing is kept from one round to the next.

    Parameters
    ----------
    method, runner
        What is run.
    honest
        The clients that do not misbehave; the global loss is that of their samples.
    by_samples
        Whether each of them counts by its number of samples, instead of all alike.

    Raises
    ------
    InvalidInput
        If the model has personal layers, with which there is no global loss.
    """

    def __init__(self, method: Method, runner: ClientRunner, honest: Collection[int], *, by_samples: bool) -> None:
        if runner.model.personal_names:
            raise InvalidInput("diagnose needs one model for all clients; omit personal, or diagnose.")
        self.method, self.runner, self.honest = method, runner, frozenset(honest)
        clients = sorted(honest)
        counts = [len(runner.clients[client]) if by_samples else 1 for client in clients]
        self.loss = GlobalLoss(runner, dict(zip(clients, normalize(counts).tolist(), strict=True)))

    def diagnose(self, training: Training, outcome: RoundOutcome) -> RoundDiagnostics:
        """Return the diagnostics of a round.

        Parameters
        ----------
        training
            The training phase.
        outcome
            The round after aggregation.
        """
        instructions, jobs = training.instructions, training.jobs
        weights, after = training.before.server.weights, outcome.state.server.weights
        gradient = partial(self.loss.gradient, buffers=instructions.buffers)
        slope = gradient(weights)
        used = set(outcome.uploads.clients.tolist())
        traced = {
            job.client: trace_client(self.runner, self.method, instructions, job, weights)
            for job in jobs
            if job.client in used & self.honest
        }
        is_complete = len(traced) == len(used) > 0
        return RoundDiagnostics(
            round=instructions.round,
            gradient_norm=finite_or_none(float(slope.norm())),
            smoothness=relative_norm(gradient(after) - slope, (after - weights).double()),
            rate_sum=_rate_sum(self.runner.config.constants.in_round(instructions.round)),
            mean_square_distance=fmean(one.mean_square_distance for one in traced.values()) if traced else None,
            over_correction=(
                _index_of_round(gradient, weights, instructions, outcome, traced) if is_complete else None
            ),
            **self._coefficients(training, outcome, traced if is_complete else {}),
            clients=_diagnose_clients(gradient, weights, slope, outcome, traced) if used else [],
        )

    def _coefficients(
        self, training: Training, outcome: RoundOutcome, traced: Mapping[int, Trajectory]
    ) -> dict[str, Any]:
        """Return α_t, β_t and the residuals of the lemmas, where they are defined."""
        scalars, clients = training.instructions.broadcast.scalars, outcome.uploads.clients.tolist()
        if "alpha" not in scalars or not clients:
            return {}
        rows = {job.client: job.row for job in training.jobs}
        received = scalars["alpha"][[rows[client] for client in clients]].double()
        found: dict[str, Any] = {"alpha": float(received.mean())}
        if isinstance(self.method, TacoCorrection):
            found["momentum"] = round_momentum(self.method, outcome.uploads, received)
            if traced and outcome.uploads.constants.local_lr > 0:
                found |= self._lemmas(training, outcome, traced, found["alpha"])
        return found

    def _lemmas(
        self, training: Training, outcome: RoundOutcome, traced: Mapping[int, Trajectory], alpha: float
    ) -> dict[str, float | None]:
        """Return the residuals of Lemmas 1 and 2; z is computed for TACO's parts, too, which return w."""
        uploads, last = outcome.uploads, training.instructions.broadcast.vectors["direction"].double()
        rates = uploads.client_effective_steps * uploads.constants.local_lr
        by_gradients = torch.stack([traced[client].gradients for client in uploads.clients.tolist()])
        mean_gradient = (by_gradients / rates[:, None]).mean(0)
        server_lr, last_server_lr = (
            uploads.relaxation * _rate_sum(self.runner.config.constants.in_round(number))
            for number in (training.instructions.round, max(1, training.instructions.round - 1))
        )
        weights, after = training.before.server.weights.double(), outcome.state.server.weights.double()
        output = weights - (1 - alpha) * last_server_lr * last
        new_output = after + (1 - float(uploads.geometry.alpha.mean())) * (after - weights)
        direction = uploads.per_step(uploads.mean_update).double()
        found = {"lemma_1_residual": lemma_1_residual(last, direction, mean_gradient, alpha)}
        all_equal = len(uploads.steps) == uploads.constants.clients and bool((uploads.steps == uploads.steps[0]).all())
        if all_equal:  # otherwise Δ and the α that z is made of are not those of this round's clients
            found["lemma_2_residual"] = lemma_2_residual(output, new_output, server_lr * mean_gradient)
        return found


def _rate_sum(constants: Constants) -> float:
    return constants.optimizer.effective_steps(constants.local_steps) * constants.local_lr


def _index_of_round(
    gradient: Gradient,
    weights: Tensor,
    instructions: Instructions,
    outcome: RoundOutcome,
    traced: Mapping[int, Trajectory],
) -> float | None:
    """Return the index of the server's move.

    Its correction is the mean of the clients' corrections, and the difference between the server's move and the mean
    of the clients' moves. The latter is of the uploads, so that it does not contain how repeated training differs.
    """
    uploads = outcome.uploads
    own = [traced[client] for client in uploads.clients.tolist()]
    by_gradients, by_correction, withheld = (
        weighted_sum(uploads.aggregation_weights, torch.stack([getattr(one, part) for one in own]))
        for part in ("gradients", "correction", "withheld")
    )
    by_server = instructions.broadcast.start - uploads.mean_update - outcome.state.server.weights
    return index_of_move(gradient, weights, by_gradients, by_correction + by_server.double() - withheld)


def _diagnose_clients(
    gradient: Gradient,
    weights: Tensor,
    slope: Tensor,
    outcome: RoundOutcome,
    traced: Mapping[int, Trajectory],
) -> list[ClientDiagnostics]:
    """Return the diagnostics of each client whose upload was used; ``slope`` is the gradient at ``weights``."""
    uploads = outcome.uploads
    square = float(slope @ slope)
    mean = uploads.vectors.total() / len(uploads.clients)
    updates = (update for _, block in uploads.vectors.blocks() for update in block.double())
    clients = []
    for client, update in zip(uploads.clients.tolist(), updates, strict=True):
        product, norms = float(slope @ update), float(slope.norm() * update.norm())
        own = traced.get(client)
        clients.append(
            ClientDiagnostics(
                client,
                mu=finite_or_none(product / square) if square > 0 else None,
                gradient_cosine=finite_or_none(product / norms) if norms > 0 else None,
                drift=finite_or_none(float((update - mean).norm())),
                mean_square_distance=None if own is None else finite_or_none(own.mean_square_distance),
                correction_ratio=None if own is None else relative_norm(own.correction, own.gradients),
                over_correction=(
                    None if own is None else index_of_move(gradient, weights, own.gradients, own.correction)
                ),
            )
        )
    return clients
