"""Evaluate a model on each client's own samples, before and after local fine-tuning."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.cohort import ClientJob, Instructions
from fedtaco.data import Samples
from fedtaco.device import deterministic_torch
from fedtaco.engines import Engine
from fedtaco.evaluation import Evaluation, Evaluator
from fedtaco.methods import Broadcast, FedAvg
from fedtaco.records import ClientEvaluation, finite_or_none
from fedtaco.server import RunState

NOT_FINITE = Evaluation(None, None)


@dataclass(frozen=True)
class ClientEvaluator:
    """Evaluates the final model of a run on each client's own samples.

    Parameters
    ----------
    evaluator
        Evaluates a model.
    engine
        Runs the steps of fine-tuning.
    samples
        Samples to evaluate on, by client; clients without any are not evaluated.
    fine_tune_steps
        Steps of plain SGD, which is FedAvg's local training, from the final model on the client's training samples; 0
        for none.
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
            before = [self._evaluate(client, state.server.weights, state.buffers) for client in clients]
            tuned = self._fine_tune(state, clients) if self.fine_tune_steps else (NOT_FINITE for _ in clients)
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

    def _fine_tune(self, state: RunState, clients: list[int]) -> Iterator[Evaluation]:
        """Yield the evaluation of each client's fine-tuned model; its batches are those of a round after the last."""
        weights = state.server.weights
        instructions = Instructions("train", state.round + 1, Broadcast(weights), state.buffers)
        try:
            for first in range(0, len(clients), self.at_once):
                group = clients[first : first + self.at_once]
                jobs = [ClientJob(row, client, self.fine_tune_steps, {}) for row, client in enumerate(group)]
                results = self.engine.run(FedAvg(), instructions, jobs)
                for client, update, buffers in zip(group, results.vectors["update"], results.buffers, strict=True):
                    yield self._evaluate(client, weights - update, buffers)
        finally:
            self.engine.close()

    def _evaluate(self, client: int, weights: Tensor, buffers: Tensor) -> Evaluation:
        if not all(torch.isfinite(tensor).all() for tensor in (weights, buffers)):
            return NOT_FINITE
        found = self.evaluator.evaluate(self.samples[client], weights, buffers)
        loss = None if found.loss is None else finite_or_none(found.loss)
        return Evaluation(loss, found.accuracy)
