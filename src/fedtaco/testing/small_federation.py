"""A small federation on which methods are checked: clients with skewed labels, and a linear model in float64."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco.client import ClientConfig, ClientRunner
from fedtaco.data import Samples, TensorSamples
from fedtaco.engines import Engine, SerialEngine
from fedtaco.evaluation import Evaluator
from fedtaco.federation import Federation
from fedtaco.methods import Constants, Method
from fedtaco.models import FlatModel, Loss
from fedtaco.run_state import FinishedRound, RunState
from fedtaco.settings.run_spec import RunSpec
from fedtaco.simulated_clients import SimulatedClients, SimulationData

CLIENTS, FEATURES, CLASSES, SAMPLES = 5, 4, 3, 12
ROUNDS, STEPS, LOCAL_LR = 4, 3, 0.1
RUN_OBJECTS = ("detector", "codec", "optimizer", "lr_schedule", "work")
CLIENT_OBJECTS = ("test", "validation", "client_tests", "steps", "adversaries")
"""What :func:`make_federation` takes as objects: fields of the run's specification, and samples and work of clients."""


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


def make_federation(
    method: Method,
    *,
    model: FlatModel | None = None,
    clients: Sequence[Samples] | None = None,
    engine: Callable[[ClientRunner], Engine] = SerialEngine,
    loss: Loss = cross_entropy,
    **options: Any,
) -> Federation:
    """Return a small federation.

    Parameters
    ----------
    method
        The method to run.
    model
        The model to train; that of :func:`linear_model` by default.
    clients
        Samples of each client; those of :func:`skewed_clients` by default.
    engine
        Returns the engine that runs the clients of a runner.
    loss
        The mean loss of a batch.
    **options
        Settings such as ``participation``, and objects: fields of :class:`~fedtaco.settings.run_spec.RunSpec`, such as
        ``detector``, and of :class:`~fedtaco.simulated_clients.SimulationData`. The model is evaluated on the samples
        of the first client unless ``test`` is given.

    Returns
    -------
    Federation
        A federation whose rounds have not started.
    """
    own = skewed_clients() if clients is None else list(clients)
    run_objects, about_clients = (
        {name: options.pop(name) for name in names if name in options} for names in (RUN_OBJECTS, CLIENT_OBJECTS)
    )
    usual = {"rounds": ROUNDS, "local_steps": STEPS, "local_lr": LOCAL_LR, "batch_size": 4}
    spec = replace(RunSpec.with_defaults(method, {**usual, **options}), **run_objects)
    settings = spec.settings
    numbers = spec.constants(len(own), settings["local_steps"])
    config = ClientConfig(numbers, settings["batch_size"], loss, settings["seed"])
    runner = ClientRunner(model or linear_model(), dict(enumerate(own)), config)
    evaluator = Evaluator(runner.model, loss, settings["seed"])
    data = SimulationData(**{"test": own[0], **about_clients})
    return SimulatedClients(spec, runner, engine(runner), evaluator, data).federation()


def linear_model() -> FlatModel:
    """Return a linear model in float64 with fixed initial weights."""
    module = nn.Linear(FEATURES, CLASSES, dtype=torch.float64)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel(), dtype=torch.float64).view_as(parameter))
    return FlatModel(module)


def run_rounds(federation: Federation, state: RunState, rounds: int | None = None) -> list[FinishedRound]:
    """Run at most ``rounds`` rounds after ``state``, by default all that are left, and return them."""
    return [finished for finished, _ in zip(federation.rounds(state), range(rounds or ROUNDS), strict=False)]


def final_state(method: Method, **options: Any) -> RunState:
    """Run all rounds of the small federation and return the final state.

    Parameters
    ----------
    method
        The method to run.
    **options
        As in :func:`make_federation`.

    Returns
    -------
    RunState
        The state after the last round.
    """
    federation = make_federation(method, **options)
    return run_rounds(federation, federation.initial)[-1].state
