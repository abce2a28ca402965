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
    """Mean loss, and the fraction of targets classified right (``None`` where there are no classes to choose from)."""

    loss: float | None
    accuracy: float | None
    class_accuracy: list[float | None] | None = None
    """The same for the samples of each class; ``None`` for a class of which there are none."""


def evaluate(model: FlatModel, samples: Samples, loss: Loss, weights: Tensor, buffers: Tensor) -> Evaluation:
    """Evaluate these weights; the model's own are overwritten."""
    model.load(weights, buffers)
    model.module.eval()
    total, targets, right = 0.0, [], []
    with torch.no_grad():
        for part in torch.split(torch.arange(len(samples)), BATCH):
            x, y = model.adopt(samples.batch(part))
            prediction = model.module(x)
            total += float(loss(prediction, y)) * len(part)
            if not y.is_floating_point():
                chosen, labelled = _chosen(prediction, y), y >= 0
                if chosen is None:
                    continue
                targets.append(y[labelled])
                right.append((chosen == y)[labelled])
    mean_loss = total / len(samples)
    return _classified(mean_loss, torch.cat(targets), torch.cat(right)) if targets else Evaluation(mean_loss, None)


def _chosen(prediction: Tensor, y: Tensor) -> Tensor | None:
    """The class that gets the most, for each target; ``None`` where predictions are no numbers for several classes.

    Classes lie in the second dimension, as cross entropy has them, or in the last one.
    """
    for dim in (1, -1):
        if prediction.ndim == y.ndim + 1 and prediction.shape[dim] > 1:
            chosen = prediction.argmax(dim)
            if chosen.shape == y.shape:
                return chosen
    return None


def _classified(mean_loss: float, targets: Tensor, right: Tensor) -> Evaluation:
    hits = targets[right]
    held = targets.bincount().tolist()
    hit = hits.bincount(minlength=len(held)).tolist()
    by_class = [own / count if count else None for own, count in zip(hit, held, strict=True)]
    return Evaluation(mean_loss, len(hits) / len(targets), by_class)
