"""Checks before training that model and loss work on the samples, so that mistakes are explained in a sentence."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedtaco.data import NumberSearch, Samples, TensorSamples, describe_sizes, find_large_in_batch, is_searchable
from fedtaco.device import deterministic_torch
from fedtaco.errors import InvalidInput
from fedtaco.files import reason_of
from fedtaco.inputs import Batch, shapes_of, tensors_of
from fedtaco.models import FlatModel, Loss

FIRST_SAMPLES = 4
"""Number of samples of each owner that are tried, besides those with extreme targets or unusually large numbers."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class _Trial:
    """Samples on which model and loss are tried."""

    rows: Sequence[int]
    """Index of each sample among those of its owner."""
    batch: Batch
    has_large: bool
    """Whether some of their numbers are unusually large."""


def check_weights(module: nn.Module) -> None:
    """Raise InvalidInput if a model's initial weights or buffers are not finite; frozen weights may be infinite."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_searchable(tensor):
            is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
            wrong = tensor.detach()[tensor.isnan() if is_frozen else ~tensor.isfinite()]
            if len(wrong):
                raise InvalidInput(
                    f"The initial model contains {float(wrong[0]):g} in '{name}'; give it finite weights and buffers."
                )


@deterministic_torch()
def check_samples(model: FlatModel, samples: Mapping[str, Samples], loss: Loss) -> None:
    """Check that samples are finite and that model and loss work on a few samples of each owner.

    All samples in memory are searched for numbers that are not finite; of others, only a few are read. The model is
    called once for each shape of a sample, and again if labels are outside of the range so far or numbers unusually
    large.

    Parameters
    ----------
    model : FlatModel
        The model, with its initial weights.
    samples : mapping of str to Samples
        The samples by the name of their owner, such as "client 3".
    loss : callable
        Returns the mean loss of predictions and targets.

    Raises
    ------
    InvalidInput
        If an owner has no samples, they cannot be read or are not finite, or model and loss do not work on them.
    """
    search = NumberSearch()
    label_ranges: dict[object, tuple[int, int]] = {}
    for owner, own in samples.items():
        if len(own) == 0:
            raise InvalidInput(f"{owner.capitalize()} has no samples; give it some, or leave it out.")
        trial = _choose_trial(own, owner, search)
        x, y = trial.batch
        shapes = shapes_of(trial.batch) if own.has_fixed_shape else None
        kind = shapes, tuple(tensor.dtype for tensor in (*tensors_of(x), y))
        lowest, highest = (0, 0) if y.is_floating_point() else (int(y.min()), int(y.max()))
        known = label_ranges.get(kind)
        if trial.has_large or known is None or lowest < known[0] or highest > known[1]:
            _try_model(model, trial, loss, owner)
            label_ranges[kind] = (lowest, highest) if known is None else (min(lowest, known[0]), max(highest, known[1]))


def _choose_trial(samples: Samples, owner: str, search: NumberSearch) -> _Trial:
    """Return the first samples, those with extreme targets if these are known, and those with large numbers."""
    large = search.find_large(samples, owner) if isinstance(samples, TensorSamples) else set()
    rows = large | set(range(min(FIRST_SAMPLES, len(samples))))
    labels = _read(owner, samples.labels)
    if labels is not None:
        if not isinstance(samples, TensorSamples):
            large = find_large_in_batch(((), labels), range(len(labels)), owner)
        by_sample = labels.double().reshape(len(labels), -1)
        rows |= {int(by_sample.amin(1).argmin()), int(by_sample.amax(1).argmax())}
    chosen = sorted(rows) if len(rows) > 1 else [0, 0]  # batch norm needs two
    batch = _read(owner, lambda: samples.batch(torch.tensor(chosen)))
    if not isinstance(samples, TensorSamples) or samples.prepare is not None:
        large |= find_large_in_batch(batch, chosen, owner)
    return _Trial(chosen, batch, bool(large))


def _read(owner: str, read: Callable[[], Value]) -> Value:
    """Return what a function reads; raise InvalidInput if the samples of ``owner`` cannot be read."""
    try:
        return read()
    except Exception as error:
        raise InvalidInput(f"The samples of {owner} cannot be read: {reason_of(error)}") from error


def _try_model(model: FlatModel, trial: _Trial, loss: Loss, owner: str) -> None:
    """Compute the gradient of a local step on samples; raise InvalidInput that says what is wrong."""
    x, y = model.move_batch(trial.batch)
    shown = ", ".join(f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in tensors_of(x))
    buffers, overflow = model.buffers.clone(), None
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.module.train()
            prediction = model.predict(x)
            mistake = _find_mistake(prediction, y, loss)
            if mistake is None:
                value = loss(prediction, y)
                gradients = torch.autograd.grad(value, model.parameters, materialize_grads=True)
                overflow = _find_overflow(model, prediction, value, gradients)
    except Exception as error:
        raise InvalidInput(
            f"Model and loss do not work on the samples of {owner} (inputs {shown}, targets {tuple(y.shape)} "
            f"{y.dtype}): {error}"
        ) from error
    finally:
        model.load(model.vector, buffers)
    if mistake is not None:
        raise InvalidInput(f"Model and loss do not work on the samples of {owner}: {mistake}")
    if overflow is not None:
        sizes = describe_sizes(trial.batch, trial.rows)
        raise InvalidInput(
            f"Before the first round, {overflow} on samples of {owner}{sizes and f', with {sizes}'}; standardise large "
            "numbers, for example with (x - x.mean(0)) / x.std(0), or check model and loss."
        )


def _find_overflow(model: FlatModel, prediction: Tensor, value: Tensor, gradients: Sequence[Tensor]) -> str | None:
    """Return what is not finite after a step: the loss, the square of the gradient's norm, or a buffer.

    A step changes the loss by about the rate times this square. The loss may be NaN although predictions are finite:
    cross entropy is NaN if it ignores all labels.
    """
    wide = torch.promote_types(gradients[0].dtype, torch.float32)
    square = sum(float(gradient.to(wide).square().sum()) for gradient in gradients)
    if value.isnan() and isinstance(prediction, Tensor) and prediction.isfinite().all():
        return None
    if not value.isfinite():
        return f"the loss is {float(value):g}"
    if not math.isfinite(square):
        return "the gradient overflows"
    return None if all(b.isfinite().all() for b in (model.buffers, model.personal_buffers)) else "a buffer overflows"


def _find_mistake(prediction: Tensor, y: Tensor, loss: Loss) -> str | None:
    """Return a sentence about a common mistake, or ``None``."""
    if not isinstance(prediction, Tensor):
        return None
    if prediction.ndim > 1 and (loss is cross_entropy or isinstance(loss, nn.CrossEntropyLoss)):
        return _find_label_mistake(prediction, y, getattr(loss, "ignore_index", -100))
    if prediction.shape != y.shape and prediction.numel() == y.numel() and _broadcasts(prediction, y, loss):
        return (
            f"predictions have the shape {_batch_shape(prediction)} and targets {_batch_shape(y)}, so that the loss "
            "compares every prediction with every target; give both the same shape, for example with targets[:, None] "
            "or a model that ends in nn.Flatten(0)."
        )
    return None


def _find_label_mistake(scores: Tensor, y: Tensor, ignored: int) -> str | None:
    """Return a sentence if targets are not class labels that cross entropy accepts, or ``None``."""
    classes = scores.shape[1]
    if y.is_floating_point():
        if y.shape == scores.shape:
            return None
        return (
            f"targets are {y.dtype} of shape {_batch_shape(y)}; cross entropy needs integer labels, for example "
            "y.long(), and regression another loss, such as loss=torch.nn.functional.mse_loss."
        )
    if scores.ndim == 2 and y.shape == (len(scores), 1):
        return "targets have the shape (n, 1); cross entropy needs one label per sample, for example y.squeeze(1)."
    if y.ndim == 1 and scores.ndim > 2:
        return (
            f"the model returns an array of shape {_batch_shape(scores)}, but there is one label per sample; return "
            "one row of scores per sample, for example by flattening the inputs first."
        )
    used = y[y != ignored]
    if used.numel() and not 0 <= int(used.min()) <= int(used.max()) < classes:
        return (
            f"labels are from {int(used.min())} to {int(used.max())}, but the model has {classes} outputs, for the "
            f"labels 0 to {classes - 1}; number the classes from 0, and give the model one output per class."
        )
    return None


def _broadcasts(prediction: Tensor, y: Tensor, loss: Loss) -> bool:
    """Return whether predictions that equal the targets have another loss in their own shape than in that of ``y``."""
    exact = y.to(prediction.dtype)
    try:
        return not torch.allclose(loss(exact.reshape(prediction.shape), y), loss(exact, y), equal_nan=True)
    except Exception:
        return False  # the loss expects predictions of another shape than the targets


def _batch_shape(tensor: Tensor) -> str:
    """Return a shape as text, with ``n`` for the number of samples.

    >>> _batch_shape(torch.zeros(4, 1)), _batch_shape(torch.zeros(4))
    ('(n, 1)', '(n,)')
    """
    return f"({', '.join(['n', *map(str, tensor.shape[1:])])}{',' if tensor.ndim == 1 else ''})"
