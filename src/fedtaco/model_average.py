"""The average of the global models of the last rounds, as an additional output of a run."""

import torch
from torch import Tensor

from fedtaco.methods import NamedTensors


def start_average(weights: Tensor, buffers: Tensor, first_round: int) -> NamedTensors:
    """Return the state of an average that begins with ``first_round``: sums in float64, so far of no model."""
    return {
        "first_round": torch.tensor([first_round]),
        "weights": torch.zeros_like(weights, dtype=torch.float64),
        "buffers": torch.zeros_like(buffers, dtype=torch.float64),
    }


def add_model(average: NamedTensors, round_number: int, weights: Tensor, buffers: Tensor) -> NamedTensors:
    """Return the average with the model of a round added, if there is an average and the round belongs to it."""
    if not average or round_number < int(average["first_round"]):
        return average
    return {**average, "weights": average["weights"] + weights, "buffers": average["buffers"] + buffers}


def mean_model(average: NamedTensors, round_number: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return weights and buffers of the average after a round, at least its first one.

    >>> start = start_average(torch.zeros(1), torch.zeros(0), first_round=4)
    >>> average = add_model(start, 4, torch.tensor([1.0]), torch.zeros(0))
    >>> average = add_model(average, 5, torch.tensor([2.0]), torch.zeros(0))
    >>> mean_model(average, 5, torch.float32)
    (tensor([1.5000]), tensor([]))
    """
    count = round_number - int(average["first_round"]) + 1
    return (average["weights"] / count).to(dtype), (average["buffers"] / count).to(dtype)
