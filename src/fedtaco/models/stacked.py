"""Stacked gradients: those of n copies of a model in one computation, for weights (n, d) and batches (n, b, ...)."""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.functional import cross_entropy

from fedtaco.inputs import Batch, Inputs, map_inputs
from fedtaco.models.calls import call_arguments, logits_of
from fedtaco.models.flat import FlatModel, Loss

StackedGradient = Callable[[Tensor, Inputs, Tensor], tuple[Tensor, Tensor]]
"""Computes gradients (n, d), a new tensor, and losses (n,) from weights (n, d), inputs (n, b, ...) and targets."""

Slope = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Computes the gradient of the loss with respect to the scores, and the losses (n,), from scores (n, classes, b)."""


class Unstackable(Exception):
    """Raised if a model has no stacked gradients; the message is a clause whose subject is the model ("it ...")."""


@dataclass(frozen=True)
class Stack:
    """Stacked gradients of a model; ``by_hand`` if the hand-written backward pass of linear layers computes them."""

    gradient_and_loss: StackedGradient
    by_hand: bool


def stack_model(model: FlatModel, loss: Loss, batch: Batch, plain_labels: bool) -> Stack:
    """Return the fastest stacked gradients of a model that agree with its own gradient on a batch.

    Parameters
    ----------
    model : FlatModel
        The model.
    loss : callable
        Returns the mean loss of predictions and targets.
    batch : Batch
        Inputs and targets to compare the gradients on.
    plain_labels : bool
        Whether all targets are class labels, none of which the loss ignores.

    Returns
    -------
    Stack
        The stacked gradients.

    Raises
    ------
    Unstackable
        If the model has no stacked gradients that agree with its own.
    """
    if model.personal_names:
        raise Unstackable("it has personal layers")
    by_hand = stack_linear(model, loss, batch, plain_labels)
    if by_hand is not None:
        return by_hand
    vectorized = Stack(_vectorized(model, loss), by_hand=False)
    if not _agrees(vectorized, model, batch, _own_gradient(model, loss, batch)):
        raise Unstackable("its stacked gradients differ from its own")
    return vectorized


def stack_linear(model: FlatModel, loss: Loss, batch: Batch, plain_labels: bool) -> Stack | None:
    """Return stacked gradients of linear layers with ReLU between them, computed by a hand-written backward pass.

    Parameters
    ----------
    model, loss, batch, plain_labels
        As in :func:`stack_model`.

    Returns
    -------
    Stack or None
        The stacked gradients; ``None`` if the model has other layers or they differ from its own gradient.
    """
    layers = _plain_layers(model)
    if layers is None or not isinstance(batch[0], Tensor):
        return None
    slope = _cross_entropy_slope if loss is cross_entropy and plain_labels else _slope_of(loss)
    stack = Stack(_LayersByHand(layers, slope), by_hand=True)
    try:
        return stack if _agrees(stack, model, batch, _own_gradient(model, loss, batch)) else None
    except Unstackable:
        return None


def _own_gradient(model: FlatModel, loss: Loss, batch: Batch) -> Tensor:
    """Return the gradient of a single model; raise Unstackable if computing it changes the model's buffers."""
    model.module.train()
    before = model.buffers.clone()
    with torch.random.fork_rng(devices=[]):
        own = model.gradient(model.vector, batch, loss, seed=0)
    changed = not torch.equal(before, model.buffers)
    model.load(model.vector, before)
    if changed:
        raise Unstackable("it changes its buffers, such as batch-norm statistics, while it trains")
    return own


def _agrees(stack: Stack, model: FlatModel, batch: Batch, own: Tensor) -> bool:
    """Return whether two stacked copies both have the gradient ``own``; raise Unstackable if they cannot be stacked."""

    def twice(part: Tensor) -> Tensor:
        return part.expand(2, *part.shape)

    points, x, y = twice(model.vector).clone(), map_inputs(twice, batch[0]), twice(batch[1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            gradients, _ = stack.gradient_and_loss(points, x, y)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            if "random" in reason:
                raise Unstackable("it draws random numbers, as dropout does") from error
            raise Unstackable(f"torch.func cannot compute its copies at once ({reason})") from error
    for warning in caught:
        if slow := re.search(r"batching rule for (\S+?)\.? ", str(warning.message)):
            raise Unstackable(f"torch.func has no stacked form of {slow[1]}")
    tolerance = 1e-3 if own.dtype == torch.float32 else 1e-9
    return bool((gradients - own).norm() <= tolerance * (1 + own.norm()))


def _vectorized(model: FlatModel, loss: Loss) -> StackedGradient:
    """Return the stacked gradients of any module, computed by ``torch.func``."""
    if len(list(model.module.named_parameters(remove_duplicate=False))) > len(list(model.module.parameters())):
        raise Unstackable("it uses a parameter in two places")
    named = [(name, p.shape) for name, p in model.module.named_parameters() if p.requires_grad]
    sizes = [shape.numel() for _, shape in named]

    def loss_at(vector: Tensor, x: Inputs, y: Tensor) -> Tensor:
        parts = zip(named, vector.split(sizes), strict=True)
        weights = {name: part.view(shape) for (name, shape), part in parts}
        return loss(logits_of(functional_call(model.module, weights, *call_arguments(x))), y)

    stacked: StackedGradient = vmap(grad_and_value(loss_at), randomness="error")
    return stacked


def _plain_layers(model: FlatModel) -> list[nn.Linear] | None:
    """Return the linear layers of a module that has only these, ReLU between them and Flatten before, else ``None``."""
    modules = list(model.module) if type(model.module) is nn.Sequential else [model.module]
    if type(modules[0]) is nn.Flatten and (modules[0].start_dim, modules[0].end_dim) == (1, -1):
        modules = modules[1:]
    layers = [module for module in modules[::2] if type(module) is nn.Linear]
    relus = [module for module in modules[1::2] if type(module) is nn.ReLU]
    own = [id(p) for layer in layers for p in layer.parameters()]
    plain = len(layers) == len(relus) + 1 and len(layers) + len(relus) == len(modules)
    return layers if plain and own == [id(p) for p in model.parameters] else None


class _LayersByHand:
    """Hand-written forward and backward pass of stacked linear layers, on tensors (n, features, b)."""

    def __init__(self, layers: list[nn.Linear], slope: Slope) -> None:
        self.shapes = [(layer.out_features, layer.in_features, layer.bias is not None) for layer in layers]
        self.sizes = [p.numel() for layer in layers for p in layer.parameters()]
        self.slope = slope

    def __call__(self, points: Tensor, x: Inputs, y: Tensor) -> tuple[Tensor, Tensor]:
        assert isinstance(x, Tensor)
        count, last = len(points), len(self.shapes) - 1
        parts = iter(points.split(self.sizes, dim=1))
        weights, activations = [], [x.flatten(2).transpose(1, 2)]
        for layer, (rows, columns, biased) in enumerate(self.shapes):
            weight = next(parts).view(count, rows, columns)
            weights.append(weight)
            if biased:
                scores = torch.baddbmm(next(parts).unsqueeze(2), weight, activations[-1])
            else:
                scores = torch.bmm(weight, activations[-1])
            activations.append(scores if layer == last else scores.relu_())
        slope, losses = self.slope(activations.pop(), y)
        gradients: list[Tensor] = []
        for weight, (_, _, biased) in zip(reversed(weights), reversed(self.shapes), strict=True):
            layer_input = activations.pop()
            if biased:
                gradients.append(slope.sum(2))
            gradients.append(torch.bmm(slope, layer_input.transpose(1, 2)).view(count, -1))
            if activations:
                slope = torch.bmm(weight.transpose(1, 2), slope)
                slope = torch.ops.aten.threshold_backward(slope, layer_input, 0)
        return torch.cat(gradients[::-1], 1), losses


def _cross_entropy_slope(scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the softmax minus the one-hot labels, divided by the batch size, and the mean losses."""
    losses = cross_entropy(scores, y, reduction="none").mean(1)
    slope = scores.softmax(1)
    slope.scatter_add_(1, y[:, None], slope.new_full((), -1).expand(len(y), 1, y.shape[1]))
    return slope.div_(y.shape[1]), losses


def _slope_of(loss: Loss) -> Slope:
    """Return the slope of any loss, computed by ``torch.func``."""

    def slope(scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        by_sample, losses = vmap(grad_and_value(loss), randomness="error")(scores.transpose(1, 2), y)
        return by_sample.transpose(1, 2), losses

    return slope
