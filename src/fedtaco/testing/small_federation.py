"""A small federation on which methods are checked: clients with skewed labels, and a linear model in float64."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco.client import ClientConfig, ClientRunner
from fedtaco.codecs import NO_CODEC, Codec
from fedtaco.data import TensorSamples
from fedtaco.engines import Engine, SerialEngine
from fedtaco.local_optimizer import PLAIN_SGD, LocalOptimizer
from fedtaco.lr_schedule import CONSTANT, LrSchedule
from fedtaco.methods import Constants, Method
from fedtaco.models import FlatModel, Loss
from fedtaco.run_state import FinishedRound, RunState
from fedtaco.simulator import Simulator
from fedtaco.trust import NO_ADVERSARIES, AdversarialClients, Detector
from fedtaco.unequal_work import ClientWork

CLIENTS, FEATURES, CLASSES, SAMPLES = 5, 4, 3, 12
ROUNDS, STEPS, LOCAL_LR = 4, 3, 0.1


def skewed_clients() -> list[TensorSamples]:
    """Return clients with random inputs; half of each client's samples have the same label, the others random ones."""
    generator = torch.Generator().manual_seed(7)
    clients = []
    for client in range(CLIENTS):
        x = torch.randn(SAMPLES, FEATURES, generator=generator, dtype=torch.float64)
        y = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
        y[: SAMPLES // 2] = client % CLASSES
        clients.append(TensorSamples(x, y))
    return clients


def constants(**changes: Any) -> Constants:
    """Return the constants of the small federation; ``changes`` replaces some of them."""
    usual = {"clients": CLIENTS, "rounds": ROUNDS, "local_steps": STEPS, "local_lr": LOCAL_LR}
    return Constants(**{**usual, **changes})


def make_simulator(
    method: Method,
    *,
    clients: Sequence[TensorSamples] | None = None,
    seed: int = 0,
    batch_size: int = 4,
    local_lr: float = LOCAL_LR,
    optimizer: LocalOptimizer = PLAIN_SGD,
    lr_schedule: LrSchedule = CONSTANT,
    engine: Callable[[ClientRunner], Engine] = SerialEngine,
    loss: Loss = cross_entropy,
    participation: float = 1.0,
    weighting: str = "uniform",
    steps: Sequence[int] | None = None,
    work: ClientWork | None = None,
    detector: Detector | None = None,
    codec: Codec = NO_CODEC,
    adversaries: AdversarialClients = NO_ADVERSARIES,
) -> Simulator:
    """Return a simulator of the small federation.

    Parameters
    ----------
    method
        The method to run.
    clients
        Samples of each client; those of :func:`skewed_clients` by default.
    seed, batch_size, local_lr, optimizer, lr_schedule, loss
        Settings of local training.
    engine
        Returns the engine that runs the clients of a runner.
    participation, weighting, steps, work, detector, codec, adversaries
        As in :class:`~fedtaco.simulator.Simulator`.

    Returns
    -------
    Simulator
        A simulator whose rounds have not started.
    """
    own = skewed_clients() if clients is None else list(clients)
    module = nn.Linear(FEATURES, CLASSES, dtype=torch.float64)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel(), dtype=torch.float64).view_as(parameter))
    numbers = constants(clients=len(own), local_lr=local_lr, optimizer=optimizer, lr_schedule=lr_schedule)
    runner = ClientRunner(FlatModel(module), own, ClientConfig(numbers, batch_size, loss, seed))
    return Simulator(
        method,
        runner,
        own[0],
        steps=steps,
        work=work,
        participation=participation,
        weighting="samples" if weighting == "samples" else "uniform",
        detector=detector,
        codec=codec,
        adversaries=adversaries,
        engine=engine(runner),
    )


def run_rounds(simulator: Simulator, state: RunState, rounds: int | None = None) -> list[FinishedRound]:
    """Run at most ``rounds`` rounds after ``state``, by default all that are left, and return them."""
    return [finished for finished, _ in zip(simulator.rounds(state), range(rounds or ROUNDS), strict=False)]


def final_state(method: Method, **options: Any) -> RunState:
    """Run all rounds of the small federation and return the final state.

    Parameters
    ----------
    method
        The method to run.
    **options
        As in :func:`make_simulator`.

    Returns
    -------
    RunState
        The state after the last round.
    """
    simulator = make_simulator(method, **options)
    return run_rounds(simulator, simulator.initial_state())[-1].state
