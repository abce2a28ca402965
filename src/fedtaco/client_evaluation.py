"""Evaluate the models of clients: on each client's own samples, before and after local fine-tuning, and on average."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.cohort import ClientJob, Instructions
from fedtaco.data import Samples
from fedtaco.device import deterministic_torch
from fedtaco.engines import Engine
from fedtaco.evaluation import Evaluation, Evaluator, OwnMetrics, mean_evaluation
from fedtaco.methods import Broadcast, FedAvg, NamedTensors
from fedtaco.models import split_memory
from fedtaco.records import ClientEvaluation, finite_or_none
from fedtaco.run_state import RunState

NO_EVALUATION = Evaluation(None, None)


@dataclass(frozen=True)
class ClientEvaluator:
    """Evaluates the final model of a run on each client's own samples, with the client's personal layers.

    Parameters
    ----------
    evaluator
        Evaluates a model.
    engine
        Runs the steps of fine-tuning.
    samples
        Samples to evaluate on, by client; clients without any are not evaluated.
    fine_tune_steps
        Steps of FedAvg's local training, at the rate of the first round, from the final model on the client's training
        samples; 0 for none.
    at_once
        Maximum number of fine-tuned models that are in memory at once.
    """

    evaluator: Evaluator
    engine: Engine
    samples: Mapping[int, Samples]
    fine_tune_steps: int
    at_once: int

    def evaluate(self, state: RunState) -> list[ClientEvaluation]:
        """Return one evaluation per client that has samples, in the order of clients."""
        clients = sorted(self.samples)
        with deterministic_torch():
            personal = {client: self._personal_layers(client, state) for client in clients}
            before = [
                self._evaluate(client, state.server.weights, state.buffers, personal[client]) for client in clients
            ]
            tuned = self._fine_tune(state, personal) if self.fine_tune_steps else (NO_EVALUATION for _ in clients)
            after = list(tuned)
        return [
            ClientEvaluation(
                client,
                len(self.samples[client]),
                global_model.accuracy,
                global_model.loss,
                own_model.accuracy,
                own_model.loss,
            )
            for client, global_model, own_model in zip(clients, before, after, strict=True)
        ]

    def _personal_layers(self, client: int, state: RunState) -> NamedTensors:
        """Return the personal layers of a client, as its memory contains them; empty if there are none."""
        _, personal = split_memory(state.memories.get(client, {}))
        return {**self.evaluator.model.initial_personal, **personal}

    def _fine_tune(self, state: RunState, personal: Mapping[int, NamedTensors]) -> Iterator[Evaluation]:
        """Yield the evaluation of each client's fine-tuned model; its batches are those of a round after the last."""
        weights, clients = state.server.weights, list(personal)
        instructions = Instructions("train", state.round + 1, Broadcast(weights), state.buffers)
        try:
            for first in range(0, len(clients), self.at_once):
                group = clients[first : first + self.at_once]
                numbered = enumerate(group)
                jobs = [ClientJob(row, client, self.fine_tune_steps, personal[client]) for row, client in numbered]
                results = self.engine.run(FedAvg(), instructions, jobs)
                for client, update, buffers in zip(group, results.vectors["update"], results.buffers, strict=True):
                    yield self._evaluate(client, weights - update, buffers, results.memories[client])
        finally:
            self.engine.close()

    def _evaluate(self, client: int, weights: Tensor, buffers: Tensor, personal: NamedTensors) -> Evaluation:
        if not all(torch.isfinite(tensor).all() for tensor in (weights, buffers, *personal.values())):
            return NO_EVALUATION
        found = self.evaluator.evaluate(self.samples[client], weights, buffers, memory=personal)
        loss = None if found.loss is None else finite_or_none(found.loss)
        return Evaluation(loss, found.accuracy)


def evaluate_own_models(
    evaluator: Evaluator,
    samples: Mapping[int, Samples],
    state: RunState,
    weights: Tensor,
    metrics: OwnMetrics | None = None,
) -> Evaluation:
    """Return the mean evaluation of the models of clients that are not expelled, each with its own personal layers.

    Parameters
    ----------
    evaluator
        Evaluates a model.
    samples
        Samples to evaluate on, by client.
    state
        The state that contains buffers and personal layers.
    weights
        The shared weights.
    metrics
        Own metrics.
    """
    return mean_evaluation(
        [
            evaluator.evaluate(own, weights, state.buffers, metrics, state.memories.get(client))
            for client, own in samples.items()
            if not state.expelled[client]
        ]
    )
