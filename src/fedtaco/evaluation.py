"""Accuracy and loss of a model on samples it was not trained on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.data import Samples
from fedtaco.models import FlatModel, Loss

BATCH = 256


@dataclass(frozen=True)
class Evaluation:
    """Mean loss and accuracy, both ``None`` without samples; accuracy is ``None`` without targets that are classes."""

    loss: float | None
    accuracy: float | None
    class_accuracy: list[float | None] | None = None
    """Accuracy on the samples of each class; ``None`` for a class without samples."""


def evaluate(model: FlatModel, samples: Samples, loss: Loss, weights: Tensor, buffers: Tensor) -> Evaluation:
    """Evaluate a model with these weights and buffers, which replace its own.

    Samples with a negative label do not count towards the accuracy.
    """
    model.load(weights, buffers)
    model.module.eval()
    total, targets, correct = 0.0, [], []
    with torch.no_grad():
        for part in torch.split(torch.arange(len(samples)), BATCH):
            x, y = model.move_batch(samples.batch(part))
            prediction = model.predict(x)
            total += float(loss(prediction, y)) * len(part)
            if not y.is_floating_point():
                predicted, labelled = _predicted_classes(prediction, y), y >= 0
                if predicted is None:
                    continue
                targets.append(y[labelled])
                correct.append((predicted == y)[labelled])
    mean_loss = total / len(samples)
    if not any(map(len, targets)):
        return Evaluation(mean_loss, None)
    return _with_accuracy(mean_loss, torch.cat(targets), torch.cat(correct))


def _predicted_classes(prediction: Tensor, y: Tensor) -> Tensor | None:
    """Return the class with the highest score for each target; ``None`` if predictions are not class scores.

    Classes are in the second dimension, as cross entropy expects them, or in the last one.
    """
    if not isinstance(prediction, Tensor):
        return None
    for dim in (1, -1):
        if prediction.ndim == y.ndim + 1 and prediction.shape[dim] > 1:
            predicted = prediction.argmax(dim)
            if predicted.shape == y.shape:
                return predicted
    return None


def _with_accuracy(mean_loss: float, targets: Tensor, correct: Tensor) -> Evaluation:
    """Return the evaluation with the accuracy on all samples and on those of each class."""
    correct_targets = targets[correct]
    counts = targets.bincount().tolist()
    hit_counts = correct_targets.bincount(minlength=len(counts)).tolist()
    by_class = [hits / count if count else None for hits, count in zip(hit_counts, counts, strict=True)]
    return Evaluation(mean_loss, len(correct_targets) / len(targets), by_class)
