"""A user's own data, model and loss, in place of those that fedtaco knows by name."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco.data import (
    Samples,
    TaskData,
    fingerprint,
    fingerprint_samples,
    is_own_dataset,
    load_own_dataset,
    own_dataset,
    own_samples,
)
from fedtaco.errors import InvalidInput
from fedtaco.evaluation import OwnMetrics
from fedtaco.models import Loss, is_own_model
from fedtaco.printable import quoted
from fedtaco.randomness import torch_seed
from fedtaco.records.formatting import pluralize
from fedtaco.registry import call_own, import_object
from fedtaco.tensor_digest import digest_tensors

OwnModel = nn.Module | Callable[[], nn.Module]
"""A module, or a callable without required arguments that returns one."""
OWN_DATA = "own data"
"""Default name of a user's own data."""


@dataclass(frozen=True)
class OwnTask:
    """What a run uses of a user's own; ``None`` stands for what its configuration names."""

    dataset: TaskData | None = None
    model: OwnModel | None = None
    loss: Loss = cross_entropy
    """The mean loss of a batch, from predictions and targets."""
    steps: Sequence[int] | None = None
    """Local steps of each client; ``local_steps`` for all by default."""
    client_tests: Mapping[int, Samples] = field(default_factory=dict)
    """Test samples of each client that has its own."""
    metrics: OwnMetrics = field(default_factory=dict)
    """Functions of predictions and targets, by name."""

    def __post_init__(self) -> None:
        if not isinstance(self.metrics, Mapping):
            raise InvalidInput(f"metrics is {quoted(self.metrics)}; it must be a mapping of names to functions.")

    @classmethod
    def from_settings(cls, dataset: str | None, model: OwnModel | str | None) -> OwnTask:
        """Return the task with the dataset and the model that settings give as code; named ones are left out.

        Raises
        ------
        InvalidInput
            If code cannot be imported, or fails.
        """
        data = load_own_dataset(dataset) if isinstance(dataset, str) and is_own_dataset(dataset) else None
        return cls(data, _find_model(model))

    @classmethod
    def from_data(
        cls,
        model: OwnModel | str | None,
        clients: Sequence[Any],
        test: Any,
        *,
        name: str | None = None,
        local_steps: int | Sequence[int] | None = None,
        client_tests: Sequence[Any] | None = None,
    ) -> OwnTask:
        """Return the task of a model and clients that are given in Python; see :func:`fedtaco.train`."""
        if name is not None and (":" in name or not name.strip()):
            raise InvalidInput(f"name is '{name}'; it must be text without a colon.")
        data = own_dataset(name or OWN_DATA, clients, test, per_client=True)
        tests = _tests_by_client(client_tests, len(clients))
        steps = _steps_by_client(local_steps, len(clients)) if isinstance(local_steps, Sequence) else None
        return cls(data, _find_model(model), steps=steps, client_tests=tests)

    def build_model(self, seed: int) -> nn.Module:
        """Return the own model with the initial weights of a seed; a module has the same ones for every seed.

        Raises
        ------
        InvalidInput
            If the model is neither a module nor a callable without required arguments that returns one.
        """
        model: Any = self.model
        if not isinstance(model, nn.Module) and _needs_no_arguments(model):
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(torch_seed(seed, "model"))
                model = call_own(name_of(model), model)
        if not isinstance(model, nn.Module):
            raise InvalidInput(
                f"The model is a {type(model).__name__}; give a torch.nn.Module, or a callable without required "
                "arguments that returns one."
            )
        return model

    def to_stored(self, seed: int) -> dict[str, Any]:
        """Return what a run folder records about own things, by which a resume recognises them."""
        stored: dict[str, Any] = {}
        if self.dataset is not None:
            info = self.dataset.info
            stored |= {"data": self._data_digest, "input_shape": list(info.shape), "classes": info.classes}
        if self.model is not None:
            stored["weights"] = digest_tensors(self.build_model(seed).state_dict().items())
        if self.loss is not cross_entropy:
            stored["loss"] = name_of(self.loss)
        if self.client_tests:
            stored["client_tests"] = fingerprint_samples(
                (f"client {client}", samples) for client, samples in self.client_tests.items()
            )
        if self.steps is not None:
            stored["steps"] = hashlib.sha256(str(list(self.steps)).encode()).hexdigest()
        return stored

    @cached_property
    def _data_digest(self) -> str:
        assert self.dataset is not None
        return fingerprint(self.dataset)


NOTHING_OWN = OwnTask()


def name_of(thing: Any) -> str:
    """Return the name of a class or function, or that of an object's class.

    >>> name_of(nn.Linear), name_of(nn.Linear(2, 1)), name_of(partial(nn.Linear, 2, 1))
    ('Linear', 'Linear', 'Linear')
    """
    thing = thing.func if isinstance(thing, partial) else thing
    return str(getattr(thing, "__name__", type(thing).__name__))


def _find_model(model: OwnModel | str | None) -> OwnModel | None:
    """Return an own model, imported if it is given as ``package.module:name``; ``None`` for a model by name."""
    if not isinstance(model, str):
        return model
    found: OwnModel | None = import_object(model, "model", "Class") if is_own_model(model) else None
    return found


def _require_one_each(name: str, given: Sequence[Any], noun: str, clients: int) -> None:
    if len(given) != clients:
        listed, needed = pluralize(len(given), noun), pluralize(clients, "client")
        raise InvalidInput(f"{name} lists {listed} for {needed}; give one for each.")


def _tests_by_client(tests: Sequence[Any] | None, clients: int) -> dict[int, Samples]:
    if tests is not None:
        _require_one_each("client_tests", tests, "test set", clients)
    given = {client: data for client, data in enumerate(tests or ()) if data is not None}
    return {client: own_samples(f"client_tests[{client}]", data) for client, data in given.items()}


def _steps_by_client(steps: Sequence[int], clients: int) -> list[int]:
    _require_one_each("local_steps", steps, "number", clients)
    if min(steps) < 1:
        raise InvalidInput(f"local_steps contains {min(steps)}; each must be a whole number at least 1.")
    return list(steps)


def _needs_no_arguments(model: Any) -> bool:
    """Return whether an object can be called without arguments."""
    try:
        inspect.signature(model).bind()
    except (TypeError, ValueError):
        return False
    return True
