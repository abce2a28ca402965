"""The global loss, which a run minimises, on a fixed part of the samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from fedtaco.client import ClientRunner
from fedtaco.data import Samples
from fedtaco.device import CPU, seed_torch
from fedtaco.inputs import Batch, join_inputs, shapes_of
from fedtaco.randomness import generator, torch_seed

SAMPLES = 1024
"""Number of samples of the global loss, taken evenly from the clients, at least one from each."""
BATCH = 512
"""Maximum number of samples of one gradient, unless a single client has more."""


@dataclass(frozen=True)
class _Part:
    """The batch of some clients that hold equally many samples and have the same weight."""

    batch: Batch
    weight: float
    """The sum of their weights in the global loss."""


class GlobalLoss:
    """The weighted mean of the losses of clients, each on some of its samples, which the run's seed determines.

    It contains coupled weight decay, as the gradients of local training do. A model with dropout draws the same units
    in each evaluation, so that this is one function of the weights.

    Parameters
    ----------
    runner
        The model, the samples of the clients, and the settings of local training.
    client_weights
        Weight of each client that counts, by client; they sum to 1.
    """

    def __init__(self, runner: ClientRunner, client_weights: Mapping[int, float]) -> None:
        self.model, self.config = runner.model, runner.config
        self.seed = torch_seed(self.config.seed, "diagnostics")
        size = max(1, SAMPLES // len(client_weights))
        drawn = [(self._draw(client, runner.clients[client], size), one) for client, one in client_weights.items()]
        self.parts = _join(drawn)

    def gradient(self, weights: Tensor, buffers: Tensor) -> Tensor:
        """Return the gradient at these weights, on the CPU and in float64; ``buffers`` are those of the model."""
        total = torch.zeros(len(weights), dtype=torch.float64)
        self.model.module.train()
        for part in self.parts:
            self.model.load(weights, buffers)
            with torch.enable_grad():
                gradient = self.model.gradient(self.model.vector, part.batch, self.config.loss, self.seed)
            total.add_(gradient.to(CPU).double(), alpha=part.weight)
        return self.config.constants.optimizer.add_decay(total, weights.double())

    def _draw(self, client: int, samples: Samples, size: int) -> Batch:
        order = generator(self.config.seed, "diagnostics", client).permutation(len(samples))
        seed_torch(torch_seed(self.config.seed, "diagnostics", client), CPU)
        return self.model.move_batch(samples.batch(torch.from_numpy(order[:size])))


def _join(drawn: Sequence[tuple[Batch, float]]) -> list[_Part]:
    """Join the batches of clients with the same shapes, number of samples and weight, up to the maximum size."""
    parts = []
    kinds = sorted(drawn, key=_kind)
    for (_, size, weight), group in groupby(kinds, key=_kind):
        batches = [batch for batch, _ in group]
        at_once = max(1, BATCH // size)
        for start in range(0, len(batches), at_once):
            chunk = batches[start : start + at_once]
            inputs = join_inputs(torch.cat, [x for x, _ in chunk])
            parts.append(_Part((inputs, torch.cat([y for _, y in chunk])), weight * len(chunk)))
    return parts


def _kind(drawn: tuple[Batch, float]) -> tuple[str, int, float]:
    batch, weight = drawn
    return str(shapes_of(batch)), len(batch[1]), weight
