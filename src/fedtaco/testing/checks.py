"""Helpers of all contracts: run checks, and compare the states of two runs."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from fedtaco.parameters import Configurable
from fedtaco.run_state import RunState

Subject = TypeVar("Subject", bound=Configurable)


def run_checks(checks: Sequence[Callable[[Subject], None]], subject: Subject) -> None:
    """Run all checks; an unexpected error becomes an AssertionError that names the rule."""
    for check in checks:
        try:
            check(subject)
        except AssertionError:
            raise
        except Exception as error:
            rule = check.__name__.replace("_", " ")
            raise AssertionError(f"{subject.name} fails '{rule}' with {type(error).__name__}: {error}") from error


def assert_same(first: RunState, second: RunState, complaint: str) -> None:
    """Raise AssertionError with ``complaint`` unless all tensors of two states have the same bits."""
    for (name, one), (_, other) in zip(named_tensors(first), named_tensors(second), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=0, equal_nan=True), f"{complaint} ('{name}')"


def named_tensors(state: RunState) -> list[tuple[str, Tensor]]:
    """Return the weights, the server's memory and the clients' memories, with names for messages."""
    memories = {
        f"client {i}: {name}": t for i, memory in sorted(state.memories.items()) for name, t in sorted(memory.items())
    }
    return [("weights", state.server.weights), *sorted(state.server.memory.items()), *memories.items()]
