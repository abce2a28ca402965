"""A small federation to check methods on: clients with skewed labels, a linear model in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco.data import TensorSamples
from fedtaco.engines import Engine, SerialEngine
from fedtaco.federation import Federation, RoundOutcome
from fedtaco.local import Plan, Worker
from fedtaco.methods import Method, Setting
from fedtaco.models import FlatModel, Loss
from fedtaco.rounds import State

CLIENTS, FEATURES, CLASSES, SAMPLES = 5, 4, 3, 12
ROUNDS, STEPS, LOCAL_LR = 4, 3, 0.1


def skewed_clients() -> list[TensorSamples]:
    """Clients that hold the same inputs with labels leaning to one class each."""
    generator = torch.Generator().manual_seed(7)
    made = []
    for client in range(CLIENTS):
        x = torch.randn(SAMPLES, FEATURES, generator=generator, dtype=torch.float64)
        y = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
        y[: SAMPLES // 2] = client % CLASSES
        made.append(TensorSamples(x, y))
    return made


def setting(local_lr: float = LOCAL_LR, count: int = CLIENTS) -> Setting:
    return Setting(clients=count, rounds=ROUNDS, local_steps=STEPS, local_lr=local_lr)


def make_federation(
    method: Method,
    *,
    clients: Sequence[TensorSamples] | None = None,
    seed: int = 0,
    batch_size: int = 4,
    local_lr: float = LOCAL_LR,
    engine: Callable[[Worker], Engine] = SerialEngine,
    loss: Loss = cross_entropy,
    participation: float = 1.0,
    weighting: str = "uniform",
    steps: Sequence[int] | None = None,
) -> Federation:
    own = skewed_clients() if clients is None else list(clients)
    module = nn.Linear(FEATURES, CLASSES, dtype=torch.float64)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel(), dtype=torch.float64).view_as(parameter))
    return Federation(
        method,
        Worker(FlatModel(module), own, Plan(setting(local_lr, len(own)), batch_size, loss, seed)),
        own[0],
        steps=steps,
        participation=participation,
        weighting="samples" if weighting == "samples" else "uniform",
        engine=engine,
    )


def play(federation: Federation, state: State, rounds: int | None = None) -> list[RoundOutcome]:
    return [outcome for outcome, _ in zip(federation.rounds(state), range(rounds or ROUNDS), strict=False)]


def final_state(method: Method, **options: object) -> State:
    federation = make_federation(method, **options)  # type: ignore[arg-type]  # passed through
    return play(federation, federation.begin())[-1].state
