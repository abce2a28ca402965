"""Accuracy and loss of a model on samples it was not trained on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.data import Samples
from fedtaco.models import FlatModel, Loss

BATCH = 256


@dataclass(frozen=True)
class Evaluation:
    """Mean loss and accuracy; accuracy is ``None`` if the targets are not classes."""

    loss: float | None
    accuracy: float | None
    class_accuracy: list[float | None] | None = None
    """Accuracy on the samples of each class; ``None`` for a class without samples."""


def evaluate(model: FlatModel, samples: Samples, loss: Loss, weights: Tensor, buffers: Tensor) -> Evaluation:
    """Evaluate a model with these weights, which overwrite its own."""
    model.load(weights, buffers)
    model.module.eval()
    total, targets, correct = 0.0, [], []
    with torch.no_grad():
        for part in torch.split(torch.arange(len(samples)), BATCH):
            x, y = model.move_batch(samples.batch(part))
            prediction = model.module(x)
            total += float(loss(prediction, y)) * len(part)
            if not y.is_floating_point():
                predicted, labelled = _predicted_classes(prediction, y), y >= 0
                if predicted is None:
                    continue
                targets.append(y[labelled])
                correct.append((predicted == y)[labelled])
    mean_loss = total / len(samples)
    return _by_class(mean_loss, torch.cat(targets), torch.cat(correct)) if targets else Evaluation(mean_loss, None)


def _predicted_classes(prediction: Tensor, y: Tensor) -> Tensor | None:
    """Return the class with the highest score for each target; ``None`` if predictions are not class scores.

    Classes are in the second dimension, as cross entropy expects them, or in the last one.
    """
    for dim in (1, -1):
        if prediction.ndim == y.ndim + 1 and prediction.shape[dim] > 1:
            predicted = prediction.argmax(dim)
            if predicted.shape == y.shape:
                return predicted
    return None


def _by_class(mean_loss: float, targets: Tensor, correct: Tensor) -> Evaluation:
    hits = targets[correct]
    counts = targets.bincount().tolist()
    hit_counts = hits.bincount(minlength=len(counts)).tolist()
    by_class = [own / count if count else None for own, count in zip(hit_counts, counts, strict=True)]
    return Evaluation(mean_loss, len(hits) / len(targets), by_class)
