"""Accuracy, loss and users' own metrics of a model on samples it was not trained on."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from fedtaco.data import Samples, TensorSamples
from fedtaco.device import CPU, deterministic_torch, seed_torch
from fedtaco.errors import InvalidInput
from fedtaco.methods import NamedTensors
from fedtaco.models import FlatModel, Loss
from fedtaco.printable import quoted
from fedtaco.processes import map_forked
from fedtaco.randomness import generator, torch_seed

BATCH = 256
MIN_SECONDS_TO_FORK = 0.5
"""Minimum estimated duration of an evaluation, in seconds, for which worker processes are started."""

OwnMetric = Callable[[Tensor, Tensor], float]
"""Computes a number from the model's outputs for all test samples and their targets, both on the CPU."""
OwnMetrics = Mapping[str, OwnMetric]


@dataclass(frozen=True)
class Evaluation:
    """Mean loss and accuracy, both ``None`` without samples; accuracy is ``None`` without targets that are classes."""

    loss: float | None
    accuracy: float | None
    class_accuracy: list[float | None] | None = None
    """Accuracy on the samples of each class; ``None`` for a class without samples."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    """Users' own metrics; ``None`` for one that could not be computed."""

    @property
    def balanced_accuracy(self) -> float | None:
        """The mean accuracy of the classes that have samples.

        >>> Evaluation(0.5, 0.9, [1.0, 0.5, None]).balanced_accuracy
        0.75
        """
        known = [accuracy for accuracy in self.class_accuracy or () if accuracy is not None]
        return fmean(known) if known else None


def mean_evaluation(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Return the mean of evaluations of different models, without an accuracy for each class.

    >>> mean_evaluation([Evaluation(0.5, 0.9, [0.9]), Evaluation(1.5, 0.7, [0.7])])
    Evaluation(loss=1.0, accuracy=0.8, class_accuracy=None, metrics={})
    """

    def mean(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return fmean(known) if known else None

    names = {name: None for one in evaluations for name in one.metrics}
    return Evaluation(
        mean(one.loss for one in evaluations),
        mean(one.accuracy for one in evaluations),
        metrics={name: mean(one.metrics[name] for one in evaluations) for name in names},
    )


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a model with given weights.

    Parameters
    ----------
    model
        The model; an evaluation replaces its weights and buffers.
    loss
        The mean loss of a batch, from predictions and targets.
    seed
        Seed of a dataset's random draws, which are the same in every evaluation.
    workers
        Maximum number of processes. Each batch is computed by one thread, and sums are in the order of the batches, so
        that the number of processes does not change a result.
    """

    model: FlatModel
    loss: Loss
    seed: int = 0
    workers: int = 1

    def evaluate(
        self,
        samples: Samples,
        weights: Tensor,
        buffers: Tensor,
        metrics: OwnMetrics | None = None,
        memory: NamedTensors | None = None,
    ) -> Evaluation:
        """Evaluate the model with these weights and buffers.

        Parameters
        ----------
        samples
            The samples to evaluate on; those with a negative label do not count towards the accuracy.
        weights, buffers
            What the model consists of.
        metrics
            Own metrics; with any, the predictions for all samples are held in memory until they are computed.
        memory
            Memory of the client whose personal layers the model gets; without it, they have their initial values.
        """
        self.model.load(weights, buffers, memory)
        self.model.module.eval()
        with torch.no_grad():
            scores = self._score_batches(samples, keep_predictions=bool(metrics))
        mean_loss = sum(score.loss for score in scores) / len(samples)
        return Evaluation(mean_loss, *_accuracies(scores), _compute_metrics(metrics or {}, scores))

    def _score_batches(self, samples: Samples, *, keep_predictions: bool) -> list[_BatchScores]:
        """Score all batches; the first one shows whether the others are worth starting processes for."""
        parts = torch.split(torch.arange(len(samples)), BATCH)

        def score(number: int) -> _BatchScores:
            seed_torch(torch_seed(self.seed, "evaluation", number), CPU)
            x, y = self.model.move_batch(samples.batch(parts[number]))
            return _BatchScores.of(self.model.predict(x), y, self.loss, keep_predictions)

        started = perf_counter()
        first = score(0)
        estimate = (perf_counter() - started) * (len(parts) - 1)
        workers = self.workers if estimate >= MIN_SECONDS_TO_FORK else 1
        return [first, *map_forked(lambda place: score(place + 1), len(parts) - 1, workers)]


@dataclass(frozen=True)
class _BatchScores:
    """What is kept of a batch, on the CPU."""

    loss: float
    """Sum over the samples."""
    labels: Tensor
    """Targets of the samples that have a class."""
    correct: Tensor
    """Whether each of them was predicted correctly."""
    outputs: tuple[Tensor, Tensor] | None
    """Predictions and targets, if they are needed."""

    @classmethod
    def of(cls, prediction: Tensor, y: Tensor, loss: Loss, keep_predictions: bool) -> _BatchScores:
        predicted = None if y.is_floating_point() else _predicted_classes(prediction, y)
        labelled = (y >= 0) & (predicted is not None)
        correct = labelled if predicted is None else predicted == y
        outputs = (prediction.to(CPU), y.to(CPU)) if keep_predictions else None
        return cls(float(loss(prediction, y)) * len(y), y[labelled].to(CPU), correct[labelled].to(CPU), outputs)


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


def _accuracies(scores: Sequence[_BatchScores]) -> tuple[float | None, list[float | None] | None]:
    """Return the accuracy on all samples and on those of each class; ``None`` if no sample has a class."""
    labels = torch.cat([score.labels for score in scores])
    if not len(labels):
        return None, None
    correct = labels[torch.cat([score.correct for score in scores])]
    counts = labels.bincount().tolist()
    hit_counts = correct.bincount(minlength=len(counts)).tolist()
    by_class = [hits / count if count else None for hits, count in zip(hit_counts, counts, strict=True)]
    return len(correct) / len(labels), by_class


def _compute_metrics(metrics: OwnMetrics, scores: Sequence[_BatchScores]) -> dict[str, float | None]:
    """Return the value of each own metric; warn and return ``None`` if it raises or is not a finite number."""
    outputs = [score.outputs for score in scores if score.outputs is not None]
    if not outputs:
        return {}
    predictions, targets = (torch.cat(parts) for parts in zip(*outputs, strict=True))
    values: dict[str, float | None] = {}
    for name, metric in metrics.items():
        try:
            value = float(metric(predictions, targets))
            problem = None if math.isfinite(value) else f"it returned {value}"
        except Exception as error:
            problem = f"it raised {type(error).__name__}: {error}"
        values[name] = value if problem is None else None
        if problem is not None:
            warnings.warn(f"The metric '{name}' is not recorded: {problem}.", RuntimeWarning, stacklevel=2)
    return values


def draw_samples(samples: Samples, count: int | None, seed: int) -> Samples:
    """Draw ``count`` of the samples, always the same ones for a seed; all if there are not more, or for ``None``."""
    if count is None or count >= len(samples):
        return samples
    drawn = generator(seed, "evaluation").permutation(len(samples))[:count]
    return samples.subset(np.sort(drawn))


def check_metrics(metrics: OwnMetrics) -> None:
    """Raise InvalidInput unless ``metrics`` maps names to functions."""
    for name, metric in metrics.items():
        if not isinstance(name, str) or not name.isprintable() or not name.strip():
            raise InvalidInput(f"metrics has the name {name!r}; a name must be printable text, such as 'f1'.")
        if not callable(metric):
            raise InvalidInput(
                f"metrics['{name}'] is {quoted(metric)}; it must be a function of predictions and targets."
            )


@deterministic_torch()
def count_classes(samples: Samples) -> list[int]:
    """Return the number of samples of each class, without those that have no label; empty if targets are not classes.

    >>> count_classes(TensorSamples(torch.zeros(4, 1), torch.tensor([0, 1, 1, -1])))
    [1, 2]
    """
    if isinstance(samples, TensorSamples):
        labels = samples.labels()
    else:
        labels = torch.cat([samples.batch(part)[1] for part in torch.split(torch.arange(len(samples)), BATCH)])
    counts: list[int] = [] if labels.is_floating_point() else labels[labels >= 0].long().bincount().tolist()
    return counts
