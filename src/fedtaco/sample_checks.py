"""Checks before training that model and loss work on the samples, so that mistakes are explained in a sentence."""

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedtaco.data import Samples, TensorSamples
from fedtaco.errors import InvalidInput
from fedtaco.files import reason_of
from fedtaco.inputs import Batch, shapes_of, tensors_of
from fedtaco.models import FlatModel, Loss

FIRST_SAMPLES = 4
"""Number of samples of each owner that are tried, besides those with the lowest and the highest target."""


def check_samples(model: FlatModel, samples: Mapping[str, Samples], loss: Loss) -> None:
    """Check that inputs are finite and that model and loss work on a few samples of each owner.

    Samples in memory are all checked for values that are not finite; of others, only a few are read. The model is
    called once for each shape of a sample, and again if the range of labels is wider.

    Parameters
    ----------
    model : FlatModel
        The model.
    samples : mapping of str to Samples
        The samples by the name of their owner, such as "client 3".
    loss : callable
        Returns the mean loss of predictions and targets.

    Raises
    ------
    InvalidInput
        If an owner has no samples, they cannot be read or are not finite, or model and loss do not work on them.
    """
    finite: set[int] = set()
    label_ranges: dict[object, tuple[int, int]] = {}
    for owner, own in samples.items():
        if len(own) == 0:
            raise InvalidInput(f"{owner.capitalize()} has no samples; give it some, or leave it out.")
        x, y = _read_some(own, owner)
        _check_finite(own, (x, y), owner, finite)
        shapes = shapes_of((x, y)) if own.has_fixed_shape else None
        kind = shapes, tuple(tensor.dtype for tensor in (*tensors_of(x), y))
        lowest, highest = (0, 0) if y.is_floating_point() else (int(y.min()), int(y.max()))
        known = label_ranges.get(kind)
        if known is None or lowest < known[0] or highest > known[1]:
            _try_model(model, (x, y), loss, owner)
            label_ranges[kind] = (lowest, highest) if known is None else (min(lowest, known[0]), max(highest, known[1]))


def _read_some(samples: Samples, owner: str) -> Batch:
    """Return the first samples, and those with the lowest and the highest target if the targets are known."""
    chosen = set(range(min(FIRST_SAMPLES, len(samples))))
    try:
        with torch.random.fork_rng(devices=[]):
            labels = samples.labels()
            if labels is not None:
                rows = labels.double().reshape(len(labels), -1)
                chosen |= {int(rows.amin(1).argmin()), int(rows.amax(1).argmax())}
            return samples.batch(torch.tensor(sorted(chosen)))
    except Exception as error:
        raise InvalidInput(f"The samples of {owner} cannot be read: {reason_of(error)}") from error


def _check_finite(samples: Samples, batch: Batch, owner: str, finite: set[int]) -> None:
    """Raise InvalidInput if an input is not finite; ``finite`` contains the ids of stored tensors known to be."""
    in_memory = isinstance(samples, TensorSamples)
    for tensor in tensors_of(samples.x if isinstance(samples, TensorSamples) else batch[0]):
        if not tensor.is_floating_point() or id(tensor) in finite:
            continue
        if _is_finite(tensor):
            finite |= {id(tensor)} if in_memory else set()
            continue
        own = tensor[samples.chosen] if in_memory and samples.chosen is not None else tensor
        if not _is_finite(own):
            row = int((~own.isfinite()).nonzero()[0, 0])
            value = float(own[row][~own[row].isfinite()][0])
            raise InvalidInput(
                f"Input {row} of {owner} contains {value:g}; remove such samples, or replace missing values by numbers."
            )


def _is_finite(tensor: Tensor) -> bool:
    """Return whether all numbers are finite; if their sum is, they are, which needs no memory to find out."""
    return bool(tensor.sum(dtype=torch.float64).isfinite()) or bool(tensor.isfinite().all())


def _try_model(model: FlatModel, batch: Batch, loss: Loss, owner: str) -> None:
    """Pass samples through model and loss; raise InvalidInput that says what does not fit."""
    x, y = model.move_batch(batch)
    shown = ", ".join(f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in tensors_of(x))
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.no_grad():
                model.module.eval()
                prediction = model.predict(x)
            mistake = _find_mistake(prediction, y, loss)
            if mistake is None:
                _try_loss(prediction, y, loss)
    except Exception as error:
        raise InvalidInput(
            f"Model and loss do not work on the samples of {owner} (inputs {shown}, targets {tuple(y.shape)} "
            f"{y.dtype}): {error}"
        ) from error
    if mistake is not None:
        raise InvalidInput(f"Model and loss do not work on the samples of {owner}: {mistake}")


def _try_loss(prediction: Tensor, y: Tensor, loss: Loss) -> None:
    """Compute the loss and its gradient with respect to the prediction, if that is a tensor."""
    if not isinstance(prediction, Tensor):
        loss(prediction, y)
        return
    with torch.enable_grad():
        point = prediction.detach().requires_grad_()
        torch.autograd.grad(loss(point, y), point)


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
