"""How good a model is on samples it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.data import Samples
from fedtaco.models import FlatModel, Loss

BATCH = 256


@dataclass(frozen=True)
class Evaluation:
    """Mean loss, and the fraction of samples classified right (``None`` where targets are no classes)."""

    loss: float | None
    accuracy: float | None


def evaluate(model: FlatModel, samples: Samples, loss: Loss, weights: Tensor, buffers: Tensor) -> Evaluation:
    """Evaluate these weights; the model's own are overwritten."""
    model.load(weights, buffers)
    model.module.eval()
    total, correct, classes = 0.0, 0, True
    with torch.no_grad():
        for part in torch.split(torch.arange(len(samples)), BATCH):
            x, y = model.adopt(samples.batch(part))
            prediction = model.module(x)
            total += float(loss(prediction, y)) * len(part)
            classes = classes and not y.is_floating_point()
            if classes:
                correct += int((prediction.argmax(-1) == y).sum())
    count = len(samples)
    return Evaluation(total / count, correct / count if classes else None)
