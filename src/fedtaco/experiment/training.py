"""Train a user's own model on a user's own clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco.data import Samples, as_samples
from fedtaco.device import choose_device
from fedtaco.engines import Choice, Engine, EngineName, MisbehavingEngine, Work, choose_engine, cores
from fedtaco.errors import InvalidInput, RunStopped
from fedtaco.experiment.build import as_method, build_detector
from fedtaco.experiment.config import Training, checked
from fedtaco.experiment.result import Result
from fedtaco.federation import Federation, Weighting
from fedtaco.local import Plan, Worker
from fedtaco.methods import Method, Setting
from fedtaco.models import FlatModel, Loss
from fedtaco.records import History, RoundRecord
from fedtaco.rounds import State, cohort_size
from fedtaco.trust import Detector, Misfits


def train(
    model: nn.Module,
    clients: Sequence[Any],
    test: Any = None,
    *,
    method: Method | type[Method] | str = "taco",
    rounds: int,
    local_steps: int | Sequence[int],
    batch_size: int = 64,
    local_lr: float = 0.01,
    server_lr: float | None = None,
    weighting: Weighting = "uniform",
    participation: float = 1.0,
    detector: str = "off",
    loss: Loss = cross_entropy,
    engine: EngineName = "auto",
    workers: int | None = None,
    device: str = "cpu",
    seed: int = 0,
    on_round: Callable[[RoundRecord], None] | None = None,
) -> Result:
    """Train ``model`` over ``clients`` with a federated method.

    Parameters
    ----------
    model
        Any module; it is copied and not changed.
    clients
        One ``(x, y)`` pair of tensors or one ``torch.utils.data.Dataset`` per client.
    test
        Samples to evaluate on after each round, in the same form, or ``None``.
    method
        A method, such as ``Taco(gamma=0.02)``, or a name.
    local_steps
        Steps per round, K; or a list with one number per client, whose largest is then K where a
        formula names it (TACO's γ).
    server_lr
        The server's rate; by default the clients' mean number of steps times ``local_lr``, with which
        the plain mean of client models comes out.
    loss
        The mean loss of a batch, from predictions and targets.
    engine, workers, device
        How clients are run: ``serial``, ``pool``, ``batched``, or ``auto``, which chooses; the number of
        processes; and ``cpu``, ``cuda``, ``mps`` or ``auto``.
    on_round
        Called with the record of each finished round.

    Examples
    --------
    >>> import torch
    >>> clients = [(torch.randn(30, 4), torch.randint(0, 3, (30,))) for _ in range(5)]
    >>> result = train(nn.Linear(4, 3), clients, test=clients[0], rounds=2, local_steps=3)
    >>> [record.round for record in result.history]
    [1, 2]
    """
    samples = [_samples(f"Client {number}", data) for number, data in enumerate(clients)]
    steps = _steps_per_client(local_steps, len(samples))
    settings = checked(
        Training,
        {
            "rounds": rounds,
            "local_steps": max(steps),
            "batch_size": batch_size,
            "local_lr": local_lr,
            "server_lr": server_lr,
            "weighting": weighting,
            "participation": participation,
            "detector": detector,
            "engine": engine,
            "device": device,
            "seed": seed,
        },
    )
    held_out = None if test is None else _samples("The test set", test)
    federation, _ = assemble(
        settings,
        as_method(method),
        model,
        samples,
        held_out,
        loss=loss,
        steps=steps,
        detector=build_detector(detector, {}),
        workers=workers,
    )
    history, state = History(), federation.begin()
    try:
        for outcome in federation.rounds(state):
            history.rounds.append(outcome.record)
            history.clients.extend(outcome.clients)
            state = outcome.state
            if on_round is not None:
                on_round(outcome.record)
    except RunStopped as stop:
        stop.history = history
        raise
    return result_of(federation, state, history)


def assemble(
    settings: Training,
    method: Method,
    model: nn.Module,
    clients: Sequence[Samples],
    test: Samples | None,
    *,
    validation: Samples | None = None,
    loss: Loss = cross_entropy,
    steps: Sequence[int] | None = None,
    detector: Detector | None = None,
    misfits: Misfits | None = None,
    workers: int | None = None,
    chosen: Mapping[str, Any] | None = None,
) -> tuple[Federation, Choice]:
    """A federation ready to play, and the engine it was given; ``chosen`` is the engine of a run that is resumed."""
    flat = FlatModel(model, choose_device(settings.device))
    for samples, whose in ((clients[0], "client 0"), (test, "the test set")):
        if samples is not None:
            _try_out(flat, samples, loss, whose)
    setting = Setting(len(clients), settings.rounds, settings.local_steps, settings.local_lr, settings.server_lr)
    worker = Worker(flat, clients, Plan(setting, settings.batch_size, loss, settings.seed))
    steps = steps or [settings.local_steps] * len(clients)
    work = Work(worker, steps, cohort_size(settings.participation, len(clients)), cores())
    engine = choose_engine(settings.engine, work, workers=workers, chosen=chosen)
    federation = Federation(
        method,
        worker,
        test,
        validation=validation,
        steps=steps,
        participation=settings.participation,
        weighting=settings.weighting,
        detector=detector,
        engine=lambda worker: _around(engine.build(worker), worker, misfits),
    )
    return federation, engine


def _around(engine: Engine, worker: Worker, misfits: Misfits | None) -> Engine:
    return engine if misfits is None else MisbehavingEngine(engine, worker, misfits)


def result_of(federation: Federation, state: State, history: History) -> Result:
    """The models in a state, with the history that led there."""
    server, method = state.server, federation.method
    model = federation.model.trained(server.weights, state.buffers)
    output = method.output(server)
    same = output is server.weights
    return Result(history, model, model if same else federation.model.trained(output, state.buffers))


def _samples(whose: str, data: Any) -> Samples:
    samples = as_samples(data)
    if len(samples) == 0:
        raise InvalidInput(f"{whose} has no samples; leave it out or give it some.")
    return samples


def _try_out(model: FlatModel, samples: Samples, loss: Loss, whose: str) -> None:
    """One sample, two if there are, through model and loss, so that what does not fit is said at once."""
    x, y = model.adopt(samples.batch(torch.arange(min(2, len(samples)))))
    try:
        with torch.no_grad():
            model.module.eval()
            loss(model.module(x), y)
    except Exception as error:
        raise InvalidInput(
            f"Model and loss do not work on the samples of {whose} (inputs {tuple(x.shape)} {x.dtype}, "
            f"targets {tuple(y.shape)} {y.dtype}): {error}"
        ) from error


def _steps_per_client(local_steps: int | Sequence[int], clients: int) -> list[int]:
    if clients == 0:
        raise InvalidInput("There are no clients; give at least one.")
    steps = [local_steps] * clients if isinstance(local_steps, int) else list(local_steps)
    if len(steps) != clients:
        raise InvalidInput(f"local_steps lists {len(steps)} numbers for {clients} clients; give one for each.")
    if min(steps) < 1:
        raise InvalidInput(f"local_steps is {min(steps)}; it must be greater than or equal to 1.")
    return steps
