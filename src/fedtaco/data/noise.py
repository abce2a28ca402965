"""Gaussian noise on the inputs of clients: the same noise every time a sample is read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedtaco.data.partitions import Partition
from fedtaco.data.samples import Samples, TensorSamples
from fedtaco.errors import InvalidInput
from fedtaco.inputs import Batch, join_inputs, map_inputs, tensors_of
from fedtaco.randomness import generator

CHUNK = 1024
"""Number of samples that are read at once."""


def add_noise(samples: Samples, partition: Partition, seed: int) -> Samples:
    """Add the noise of a partition to the inputs of samples.

    The noise of a sample depends on the seed and its index; the client that holds it determines the standard deviation.

    Parameters
    ----------
    samples : Samples
        All samples that the partition assigns to clients.
    partition : Partition
        The partition.
    seed : int
        Seed of the noise.

    Returns
    -------
    Samples
        The samples with noise, in memory if they were before; the same samples if the partition has no noise.

    Raises
    ------
    InvalidInput
        If the inputs are not floating-point numbers.
    """
    if partition.noise is None:
        return samples
    with torch.random.fork_rng(devices=[]):
        x, _ = samples.batch(torch.tensor([0]))
    if not any(tensor.is_floating_point() for tensor in tensors_of(x)):
        raise InvalidInput(f"Noise needs floating-point inputs, but these are {tensors_of(x)[0].dtype}; use iid.")
    deviations = torch.zeros(len(samples))
    for indices, deviation in zip(partition.indices, partition.noise, strict=True):
        deviations[torch.from_numpy(indices)] = deviation
    noisy = NoisySamples(samples, deviations, seed)
    return noisy.in_memory() if isinstance(samples, TensorSamples) else noisy


class NoisySamples(Samples):
    """Samples whose floating-point inputs have Gaussian noise, drawn anew but equal whenever a sample is read.

    Parameters
    ----------
    samples : Samples
        The samples without noise.
    deviations : Tensor
        Standard deviation of the noise of each sample.
    seed : int
        Seed of the noise.
    """

    def __init__(self, samples: Samples, deviations: Tensor, seed: int) -> None:
        super().__init__()
        self.samples, self.deviations, self.seed = samples, deviations, seed
        self.has_fixed_shape = samples.has_fixed_shape

    def count(self) -> int:
        return len(self.samples)

    def labels(self) -> Tensor | None:
        labels = self.samples.labels()
        return labels if labels is None or self.chosen is None else labels[self.chosen]

    def read(self, rows: Tensor) -> Batch:
        x, y = self.samples.batch(rows)
        generators = [generator(self.seed, "noise", row) for row in rows.tolist()]
        deviations = self.deviations[rows]
        return map_inputs(lambda tensor: _add_noise(tensor, deviations, generators), x), y

    def in_memory(self) -> TensorSamples:
        """Read all samples once, so that the noise need not be drawn again."""
        parts = [self.batch(part) for part in torch.split(torch.arange(len(self)), CHUNK)]
        return TensorSamples(join_inputs(torch.cat, [x for x, _ in parts]), torch.cat([y for _, y in parts]))


def _add_noise(tensor: Tensor, deviations: Tensor, generators: Sequence[np.random.Generator]) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    shape = tuple(tensor.shape[1:])
    noise = torch.from_numpy(np.stack([own.standard_normal(shape, dtype=np.float32) for own in generators]))
    return tensor + (noise * deviations.view(-1, *[1] * len(shape))).to(tensor.dtype)
