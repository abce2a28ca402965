"""FlatModel: all trainable parameters of a module are views of one vector."""

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedtaco.device import CPU, seed_torch
from fedtaco.errors import InvalidInput
from fedtaco.inputs import Batch, Inputs, map_inputs
from fedtaco.models.calls import call_arguments, logits_of
from fedtaco.models.personal import BUFFERS, WEIGHTS, personal_names
from fedtaco.tensor_digest import digest_tensors

Loss = Callable[[Tensor, Tensor], Tensor]


class FlatModel:
    """A copy of a module whose trainable parameters are views of ``vector``.

    Frozen parameters stay as they are. Floating-point buffers, such as batch-norm statistics, are views of
    ``buffers``, which the server averages separately; :meth:`load` resets all other buffers to their initial values.
    Personal parameters and buffers are views of ``personal`` and ``personal_buffers`` instead.

    Parameters
    ----------
    module : torch.nn.Module
        The model; it is copied.
    device : torch.device, optional
        Device of the copy; the CPU by default.
    personal : sequence of str, optional
        Patterns of the names of parameters and buffers that each client keeps for itself; see
        :func:`~fedtaco.models.personal.personal_names`.

    Raises
    ------
    InvalidInput
        If ``module`` is not a module, has no trainable parameters, has uninitialised ones, or mixes dtypes, or a
        pattern matches nothing or everything.

    Examples
    --------
    >>> model = FlatModel(nn.Linear(2, 1))
    >>> model.vector.shape
    torch.Size([3])
    """

    def __init__(self, module: nn.Module, device: torch.device = CPU, personal: Sequence[str] = ()) -> None:
        if not isinstance(module, nn.Module):
            raise InvalidInput(f"The model is a {type(module).__name__}; give a torch.nn.Module.")
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
            raise InvalidInput("The model has lazy layers without a shape; call it once on a batch first.")
        self.device = device
        self.module = copy.deepcopy(module).to(device)
        trainable = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        if not trainable:
            raise InvalidInput("The model has no trainable parameters; set requires_grad on some of its parameters.")
        dtypes = {p.dtype for p in trainable.values()}
        if len(dtypes) > 1 or not all(dtype.is_floating_point for dtype in dtypes):
            found = ", ".join(sorted(str(dtype) for dtype in dtypes))
            raise InvalidInput(
                f"The model's trainable parameters have the dtypes {found}; "
                "convert them to one floating-point dtype, for example with model.float()."
            )
        floating = {name: b for name, b in self.module.named_buffers() if b.is_floating_point()}
        if len({b.dtype for b in floating.values()}) > 1:
            raise InvalidInput("The model's buffers have mixed floating-point dtypes; convert them with model.float().")
        self._counters = [(b, b.clone()) for b in self.module.buffers() if not b.is_floating_point()]
        self.personal_names = personal_names(self.module, personal)
        """Names of the personal parameters and buffers."""
        first = next(iter(trainable.values()))
        self._shared, own = (_Flattened(part, like=first) for part in self._split(trainable))
        self._buffers, own_buffers = (_Flattened(part, like=self._shared.vector) for part in self._split(floating))
        self.vector, self.personal = self._shared.vector, own.vector
        self.buffers, self.personal_buffers = self._buffers.vector, own_buffers.vector
        self.parameters = [*self._shared.named.values(), *own.named.values()]
        """The trainable parameters, first the shared ones."""
        self._personal = {key: part for key, part in ((WEIGHTS, own), (BUFFERS, own_buffers)) if part.named}
        given = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self.initial_personal = {
            key: torch.cat([given[name].detach().reshape(-1) for name in part.named]).to(CPU)
            for key, part in self._personal.items()
        }
        """The personal layers of a client before its first round, as its memory contains them."""

    @property
    def min_buffers(self) -> Tensor:
        """The lowest valid value of each entry of ``buffers``: 0 for running variances, no limit for the others."""
        named = self._buffers.named
        lowest = [0.0 if name.endswith("running_var") else -torch.inf for name in named]
        sizes = torch.tensor([buffer.numel() for buffer in named.values()], dtype=torch.int64)
        return torch.tensor(lowest, dtype=self.buffers.dtype).repeat_interleave(sizes)

    @property
    def unsent_names(self) -> frozenset[str]:
        """Names in the state dict of what is never sent: personal parameters and buffers, and frozen parameters."""
        shared = {id(parameter) for parameter in self._shared.named.values()}
        named = self.module.named_parameters(remove_duplicate=False)
        return self.personal_names | {name for name, parameter in named if id(parameter) not in shared}

    def load(self, vector: Tensor, buffers: Tensor, memory: Mapping[str, Tensor] | None = None) -> None:
        """Copy these weights and buffers into the model, and the personal layers that a client's memory contains.

        Without any, personal layers get their initial values.
        """
        self.vector.copy_(vector)
        self.buffers.copy_(buffers)
        for counter, initial in self._counters:
            counter.copy_(initial)
        personal = {**self.initial_personal, **(memory or {})}
        for key, part in self._personal.items():
            part.vector.copy_(personal[key])

    def personal_memory(self) -> dict[str, Tensor]:
        """Return a copy of the personal layers, as a client's memory contains them; empty if there are none."""
        return {key: part.vector.to(CPU, copy=True) for key, part in self._personal.items()}

    def personal_state(self, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the personal parameters and buffers in a client's memory by name, else their initial values."""
        parts = [part.unflatten(memory.get(key, self.initial_personal[key])) for key, part in self._personal.items()]
        return {name: tensor for part in parts for name, tensor in part.items()}

    def gradient(self, point: Tensor, batch: Batch, loss: Loss, seed: int) -> Tensor:
        """Return the gradient alone; see :meth:`gradient_and_loss`."""
        return self.gradient_and_loss(point, batch, loss, seed)[0]

    def gradient_and_loss(self, point: Tensor, batch: Batch, loss: Loss, seed: int) -> tuple[Tensor, Tensor]:
        """Return the gradient of the mean loss on a batch at ``point``, as a new vector, and the loss.

        The gradient begins with that of the shared parameters, which are at ``point``; that of the personal parameters
        follows. The weights do not change. ``seed`` seeds the model's random draws, such as dropout, so that gradients
        at two points can share them.
        """
        if point is not self.vector:
            tensors = [self.vector, self.buffers, self.personal_buffers, *(counter for counter, _ in self._counters)]
            saved = [tensor.clone() for tensor in tensors]
            try:
                self.vector.copy_(point)
                return self.gradient_and_loss(self.vector, batch, loss, seed)
            finally:
                for tensor, value in zip(tensors, saved, strict=True):
                    tensor.copy_(value)
        seed_torch(seed, self.device)
        x, y = batch
        value = loss(self.predict(x), y)
        gradients = torch.autograd.grad(value, self.parameters, materialize_grads=True)
        return torch.cat([g.reshape(-1) for g in gradients]), value.detach()

    def predict(self, x: Inputs) -> Tensor:
        """Return the model's predictions, at its own weights and in its current mode."""
        arguments, named_arguments = call_arguments(x)
        return logits_of(self.module(*arguments, **named_arguments))

    def move_batch(self, batch: Batch) -> Batch:
        """Move a batch to the model's device, and convert floating-point inputs to the model's dtype."""
        x, y = batch
        return map_inputs(self._move_input, x), y.to(self.device)

    def _move_input(self, tensor: Tensor) -> Tensor:
        return (tensor.to(self.vector.dtype) if tensor.is_floating_point() else tensor).to(self.device)

    def frozen_fingerprint(self) -> str:
        """Return a hash of the frozen parameters, or the text ``none`` if there are none."""
        frozen = [(name, p) for name, p in self.module.named_parameters() if not p.requires_grad]
        return digest_tensors(frozen) if frozen else "none"

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

    def _split(self, named: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the shared and the personal ones of some parameters or buffers."""
        own = {name: tensor for name, tensor in named.items() if name in self.personal_names}
        return {name: tensor for name, tensor in named.items() if name not in own}, own


class _Flattened:
    """Named tensors that are made views of one vector, which has the type of ``like`` if there are none."""

    def __init__(self, named: Mapping[str, Tensor], like: Tensor) -> None:
        self.named = named
        tensors = [tensor.detach().reshape(-1) for tensor in named.values()]
        self.vector = torch.cat(tensors) if tensors else like.detach().new_empty(0)
        for name, view in self.unflatten(self.vector).items():
            named[name].data = view

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the parts of a vector of this size by name."""
        parts = vector.split([tensor.numel() for tensor in self.named.values()]) if self.named else ()
        return {name: part.view_as(self.named[name]) for name, part in zip(self.named, parts, strict=True)}
