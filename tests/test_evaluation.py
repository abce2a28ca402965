"""Loss and accuracy for classes, sequences of classes, and targets that are not classes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

import fedtaco


def test_regression_has_a_loss_but_no_accuracy():
    clients = [(torch.randn(20, 5), torch.randn(20, 1)) for _ in range(3)]
    result = fedtaco.train(
        nn.Linear(5, 1), clients, clients[0], method="fedavg", rounds=2, local_steps=2, loss=nn.MSELoss()
    )
    assert result.history.final_accuracy is None
    assert result.history.rounds[-1].loss > 0


@pytest.mark.parametrize("outputs", [(), (1,)])
def test_single_logit_has_a_loss_but_no_accuracy(outputs):
    clients = [(torch.randn(20, 5), torch.arange(20) % 2) for _ in range(3)]
    model = nn.Sequential(nn.Linear(5, 1), nn.Flatten(0) if outputs == () else nn.Identity())

    def loss(prediction, y):
        return binary_cross_entropy_with_logits(prediction.flatten(), y.float())

    result = fedtaco.train(model, clients, clients[0], method="fedavg", rounds=1, local_steps=2, loss=loss)
    assert result.history.final_accuracy is None
    assert result.history.rounds[-1].loss > 0


def test_accuracy_of_sequences_counts_every_position():
    class Copy(nn.Module):
        """Predicts that each target equals its input."""

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return self.scale * one_hot(x, 3).float().movedim(-1, 1)

    x = torch.arange(40).reshape(8, 5) % 3
    y = torch.where(torch.arange(5) < 4, x, (x + 1) % 3)
    result = fedtaco.train(Copy(), [(x, y)], (x, y), method="fedavg", rounds=1, local_steps=1)
    assert result.history.final_accuracy == 0.8


def test_samples_without_a_label_have_a_loss_but_no_accuracy():
    clients = [(torch.randn(20, 5), torch.arange(20) % 3) for _ in range(3)]
    unlabelled = torch.randn(20, 5), torch.full((20,), -1)

    def loss(prediction, y):
        return prediction.square().mean()

    result = fedtaco.train(nn.Linear(5, 3), clients, unlabelled, method="fedavg", rounds=1, local_steps=1, loss=loss)
    assert result.history.final_accuracy is None
    assert result.history.rounds[-1].loss > 0
