"""The batches that local steps train on: which samples they contain, and those of several clients stacked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedtaco.data.samples import Samples, TensorSamples
from fedtaco.inputs import Batch, join_inputs, map_inputs, shapes_of

MAX_REPEATED = 256
"""Size of a batch up to which a client with fewer samples repeats them."""


class StackedBatches:
    """The batches of several clients, stacked along a new first dimension.

    If the samples of all clients are parts of the same tensors, each batch is read in one operation.

    Parameters
    ----------
    clients : sequence of Samples
        The samples of each client.
    plans : sequence of Tensor
        The indices of each client's batches, (steps, batch size); see :func:`batch_plan`.
    seeds : sequence of int
        For each client, the seed of its dataset's random draws, such as random crops, in step 0; step k adds k to it.
    """

    def __init__(self, clients: Sequence[Samples], plans: Sequence[Tensor], seeds: Sequence[int]) -> None:
        self.clients, self.indices, self.seeds = clients, torch.stack(list(plans), dim=1), seeds
        self.whole = _common_tensors(clients)
        if self.whole is not None:
            for client, samples in enumerate(clients):
                self.indices[:, client] = samples.rows(self.indices[:, client])

    def at(self, step: int) -> Batch:
        """Return the inputs and targets of one step, both (clients, batch size, ...)."""
        indices = self.indices[step]
        if self.whole is not None:
            x, y = self.whole.batch(indices.flatten())
            return map_inputs(lambda tensor: tensor.unflatten(0, indices.shape), x), y.unflatten(0, indices.shape)
        batches = []
        for samples, own, seed in zip(self.clients, indices, self.seeds, strict=True):
            torch.default_generator.manual_seed(seed + step)
            batches.append(samples.batch(own))
        return join_inputs(torch.stack, [x for x, _ in batches]), torch.stack([y for _, y in batches])


def have_equal_shapes(clients: Sequence[Samples], batch_size: int) -> bool:
    """Return whether batches of all clients have the same structure and shapes, so that they can be stacked."""
    if len({capped_batch_size(batch_size, len(samples)) for samples in clients}) > 1:
        return False
    if _common_tensors(clients) is not None:
        return True
    with torch.random.fork_rng(devices=[]):
        shapes = {shapes_of(samples.batch(torch.tensor([0]))) for samples in clients}
    return len(shapes) == 1 and all(samples.has_fixed_shape for samples in clients)


def _common_tensors(clients: Sequence[Samples]) -> TensorSamples | None:
    """Return the samples that all clients hold parts of, or ``None`` if their tensors differ."""
    tensors = {(id(c.x), id(c.y), id(c.prepare)) if isinstance(c, TensorSamples) else None for c in clients}
    first = clients[0]
    if len(tensors) > 1 or not isinstance(first, TensorSamples):
        return None
    return TensorSamples(first.x, first.y, first.prepare)


def capped_batch_size(batch_size: int, count: int) -> int:
    """Return the number of samples in each batch of a client with ``count`` samples.

    A batch has at most as many samples as the client, but a client with fewer than 256 repeats them up to 256: small
    clients of a cohort then have batches of equal size, which engines can stack.

    >>> [capped_batch_size(size, count=40) for size in (16, 64, 1_000_000)]
    [16, 64, 256]
    >>> capped_batch_size(1_000_000, count=3000)
    3000
    """
    return min(batch_size, max(count, MAX_REPEATED))


def batch_plan(rng: np.random.Generator, count: int, steps: int, batch_size: int) -> Tensor:
    """Draw the indices of the samples that each local step of a client trains on.

    The samples are permuted anew for every pass, and the passes are joined and cut into full batches. A client
    with fewer samples than a batch therefore repeats them within a batch, up to the size that
    :func:`capped_batch_size` returns.

    Parameters
    ----------
    rng : numpy.random.Generator
        Generator for this client and round.
    count : int
        Number of samples of the client.
    steps : int
        Number of local steps.
    batch_size : int
        Number of samples per step, before it is capped.

    Returns
    -------
    Tensor
        Indices, (steps, capped batch size).

    Examples
    --------
    >>> batch_plan(np.random.default_rng(0), count=4, steps=2, batch_size=4).sort().values
    tensor([[0, 1, 2, 3],
            [0, 1, 2, 3]])
    """
    batch_size = capped_batch_size(batch_size, count)
    passes = math.ceil(steps * batch_size / count)
    order = rng.permuted(np.tile(np.arange(count), (passes, 1)), axis=1).reshape(-1)
    return torch.from_numpy(order[: steps * batch_size].reshape(steps, batch_size))


def steps_for_epochs(epochs: int, count: int, batch_size: int) -> int:
    """Return the number of full batches in which a client trains on each of its ``count`` samples ``epochs`` times.

    >>> steps_for_epochs(2, count=50, batch_size=64), steps_for_epochs(2, count=3000, batch_size=1_000_000)
    (2, 2)
    """
    return -(-epochs * count // capped_batch_size(batch_size, count))
