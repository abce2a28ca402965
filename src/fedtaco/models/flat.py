"""FlatModel: all trainable parameters of a module are views of one vector."""

import copy
import hashlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from fedtaco.device import CPU, seed_torch
from fedtaco.errors import InvalidInput

Batch = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


class FlatModel:
    """A copy of a module whose trainable parameters are views of ``vector``.

    Frozen parameters stay as they are. Floating buffers, such as batch-norm statistics, are views of
    ``buffers``, which the server averages separately; integer buffers are reset in every round.

    >>> model = FlatModel(nn.Linear(2, 1))
    >>> model.vector.shape
    torch.Size([3])
    """

    def __init__(self, module: nn.Module, device: torch.device = CPU) -> None:
        if not isinstance(module, nn.Module):
            raise InvalidInput(f"The model is a {type(module).__name__}; give a torch.nn.Module.")
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
            raise InvalidInput("The model has lazy layers without a shape; call it once on a batch first.")
        self.device = device
        self.module = copy.deepcopy(module).to(device)
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        if not self.parameters:
            raise InvalidInput("The model has no trainable parameter; set requires_grad on some of them.")
        kinds = {p.dtype for p in self.parameters}
        if len(kinds) > 1 or not self.parameters[0].is_floating_point():
            found = ", ".join(sorted(str(kind) for kind in kinds))
            raise InvalidInput(
                f"The model's trainable parameters have the types {found}; "
                "make them one floating type, for example with model.float()."
            )
        own = list(self.module.buffers())
        floating = [b for b in own if b.is_floating_point()]
        if len({b.dtype for b in floating}) > 1:
            raise InvalidInput("The model's buffers have several floating types; make them one, as with model.float().")
        self._counters = [(b, b.clone()) for b in own if not b.is_floating_point()]
        self.vector = _flatten(self.parameters)
        self.buffers = _flatten(floating) if floating else self.vector.new_empty(0)

    def load(self, vector: Tensor, buffers: Tensor) -> None:
        """Copy these weights and buffers into the model."""
        self.vector.copy_(vector)
        self.buffers.copy_(buffers)
        for counter, initial in self._counters:
            counter.copy_(initial)

    def gradient(self, point: Tensor, batch: Batch, loss: Loss, seed: int) -> Tensor:
        """Return the gradient of the mean loss on a batch at ``point``, as a new vector; the model's weights stay.

        ``seed`` fixes what the model draws, such as dropout, so that two points can be compared under one draw.
        """
        if point is not self.vector:
            everything = [self.vector, self.buffers, *(counter for counter, _ in self._counters)]
            kept = [tensor.clone() for tensor in everything]
            try:
                self.vector.copy_(point)
                return self.gradient(self.vector, batch, loss, seed)
            finally:
                for tensor, value in zip(everything, kept, strict=True):
                    tensor.copy_(value)
        seed_torch(seed, self.device)
        x, y = batch
        value = loss(self.module(x), y)
        gradients = torch.autograd.grad(value, self.parameters, materialize_grads=True)
        return torch.cat([g.reshape(-1) for g in gradients])

    def move_batch(self, batch: Batch) -> Batch:
        """Move a batch to the model's device, and floating inputs to its dtype."""
        x, y = batch
        if x.is_floating_point():
            x = x.to(self.vector.dtype)
        return x.to(self.device), y.to(self.device)

    def frozen_fingerprint(self) -> str:
        """Return a hash of the frozen parameters; ``none`` if there are none."""
        frozen = [(name, p) for name, p in self.module.named_parameters() if not p.requires_grad]
        digest = hashlib.sha256()
        for name, parameter in frozen:
            digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
            digest.update(parameter.detach().to(CPU).reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest() if frozen else "none"

    def to_device(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Move named tensors to the model's device."""
        return {name: tensor.to(self.device) for name, tensor in named.items()}

    def to_module(self, vector: Tensor, buffers: Tensor) -> nn.Module:
        """Return a copy of the module with these weights, on the CPU and in evaluation mode."""
        self.load(vector, buffers)
        return copy.deepcopy(self.module).to(CPU).eval()


def _flatten(tensors: list[nn.Parameter] | list[Tensor]) -> Tensor:
    """Return one vector that holds the tensors, and make them views of it."""
    vector = torch.cat([t.detach().reshape(-1) for t in tensors])
    for tensor, part in zip(tensors, vector.split([t.numel() for t in tensors]), strict=True):
        tensor.data = part.view_as(tensor)
    return vector
