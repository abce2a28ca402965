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

    Frozen parameters stay as they are. Floating-point buffers, such as batch-norm statistics, are views of
    ``buffers``, which the server averages separately; :meth:`load` resets all other buffers to their initial values.

    Parameters
    ----------
    module : torch.nn.Module
        The model; it is copied.
    device : torch.device, optional
        Device of the copy; the CPU by default.

    Raises
    ------
    InvalidInput
        If ``module`` is not a module, has no trainable parameters, has uninitialised ones, or mixes dtypes.

    Examples
    --------
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
            raise InvalidInput("The model has no trainable parameters; set requires_grad on some of its parameters.")
        dtypes = {p.dtype for p in self.parameters}
        if len(dtypes) > 1 or not self.parameters[0].is_floating_point():
            found = ", ".join(sorted(str(dtype) for dtype in dtypes))
            raise InvalidInput(
                f"The model's trainable parameters have the dtypes {found}; "
                "convert them to one floating-point dtype, for example with model.float()."
            )
        all_buffers = list(self.module.buffers())
        floating = [b for b in all_buffers if b.is_floating_point()]
        if len({b.dtype for b in floating}) > 1:
            raise InvalidInput("The model's buffers have mixed floating-point dtypes; convert them with model.float().")
        self._counters = [(b, b.clone()) for b in all_buffers if not b.is_floating_point()]
        self.vector = _flatten(self.parameters)
        self.buffers = _flatten(floating) if floating else self.vector.new_empty(0)

    @property
    def min_buffers(self) -> Tensor:
        """The lowest valid value of each entry of ``buffers``: 0 for running variances, no limit for the others."""
        named = [(name, buffer) for name, buffer in self.module.named_buffers() if buffer.is_floating_point()]
        lowest = [0.0 if name.endswith("running_var") else -torch.inf for name, _ in named]
        sizes = torch.tensor([buffer.numel() for _, buffer in named], dtype=torch.int64)
        return torch.tensor(lowest, dtype=self.buffers.dtype).repeat_interleave(sizes)

    def load(self, vector: Tensor, buffers: Tensor) -> None:
        """Copy these weights and buffers into the model."""
        self.vector.copy_(vector)
        self.buffers.copy_(buffers)
        for counter, initial in self._counters:
            counter.copy_(initial)

    def gradient(self, point: Tensor, batch: Batch, loss: Loss, seed: int) -> Tensor:
        """Return the gradient alone; see :meth:`gradient_and_loss`."""
        return self.gradient_and_loss(point, batch, loss, seed)[0]

    def gradient_and_loss(self, point: Tensor, batch: Batch, loss: Loss, seed: int) -> tuple[Tensor, Tensor]:
        """Return the gradient of the mean loss on a batch at ``point``, as a new vector, and the loss.

        The weights do not change. ``seed`` seeds the model's random draws, such as dropout, so that gradients at two
        points can share them.
        """
        if point is not self.vector:
            tensors = [self.vector, self.buffers, *(counter for counter, _ in self._counters)]
            saved = [tensor.clone() for tensor in tensors]
            try:
                self.vector.copy_(point)
                return self.gradient_and_loss(self.vector, batch, loss, seed)
            finally:
                for tensor, value in zip(tensors, saved, strict=True):
                    tensor.copy_(value)
        seed_torch(seed, self.device)
        x, y = batch
        value = loss(self.module(x), y)
        gradients = torch.autograd.grad(value, self.parameters, materialize_grads=True)
        return torch.cat([g.reshape(-1) for g in gradients]), value.detach()

    def move_batch(self, batch: Batch) -> Batch:
        """Move a batch to the model's device, and convert floating-point inputs to the model's dtype."""
        x, y = batch
        if x.is_floating_point():
            x = x.to(self.vector.dtype)
        return x.to(self.device), y.to(self.device)

    def frozen_fingerprint(self) -> str:
        """Return a hash of the frozen parameters, or the text ``none`` if there are none."""
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
        """Load these weights and buffers, and return a copy of the module on the CPU in evaluation mode."""
        self.load(vector, buffers)
        module = copy.deepcopy(self.module).to(CPU).eval()
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data = tensor.data.clone()  # no longer a view, so that the module can be saved as safetensors
        return module


def _flatten(tensors: list[nn.Parameter] | list[Tensor]) -> Tensor:
    """Return one vector that holds the tensors, and make them views of it."""
    vector = torch.cat([t.detach().reshape(-1) for t in tensors])
    for tensor, part in zip(tensors, vector.split([t.numel() for t in tensors]), strict=True):
        tensor.data = part.view_as(tensor)
    return vector
