"""Train a user's own model on a user's own clients."""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco.data import Samples, as_samples
from fedtaco.errors import InvalidInput, RunStopped
from fedtaco.evaluation import OwnMetrics
from fedtaco.experiment.config import require_steps_or_epochs
from fedtaco.experiment.prepared_run import prepare_simulator
from fedtaco.methods import METHODS, Method
from fedtaco.models import Loss
from fedtaco.records import PartitionRecord, RoundRecord
from fedtaco.runs.recorder import Recorder
from fedtaco.runs.result import Result
from fedtaco.runs.settings import RunSettings, TrainSettings, check_settings
from fedtaco.trust import DETECTORS


def train(
    model: nn.Module,
    clients: Sequence[Any],
    test: Any = None,
    *,
    method: Method | type[Method] | str = "taco",
    rounds: int,
    local_steps: int | Sequence[int] | None = None,
    loss: Loss = cross_entropy,
    client_tests: Sequence[Any] | None = None,
    metrics: OwnMetrics | None = None,
    workers: int | None = None,
    on_round: Callable[[RoundRecord], None] | None = None,
    **settings: Unpack[TrainSettings],
) -> Result:
    """Train ``model`` over ``clients`` with a federated method.

    Parameters
    ----------
    model
        Any module; it is copied and not changed.
    clients
        The samples of each client: a pair ``(x, y)`` of tensors, arrays or frames, a ``Dataset``, a ``DataLoader``, or
        any other form that ``docs/own-data.md`` shows. The model is called as ``model(x)``, with several inputs as
        ``model(*x)`` or ``model(**x)``.
    test
        Samples to evaluate on after each round, in the same form, or ``None``.
    method
        A method, such as ``Taco(gamma=0.02)``, or a name.
    rounds
        Communication rounds, T.
    local_steps
        Local steps per client and round, K; or one number for each client, the largest of which stands for K
        in formulas such as TACO's γ = 1/K. Give either this or ``local_epochs``.
    loss
        The mean loss of a batch, from predictions and targets. If the model returns an object with ``logits``, these
        are the predictions.
    client_tests
        One test set per client, in the same form, or ``None`` for a client without one. The final model is evaluated
        on each, see ``client_evaluations`` of the result; with ``fine_tune_steps``, also after fine-tuning.
    metrics
        Own metrics by name, such as ``{"f1": f1}``: functions of the model's outputs for all test samples and of their
        targets, both tensors on the CPU, that return a number. They are recorded in each evaluated round.
    workers
        Number of worker processes of the engines ``pool`` and ``batched``; by default at most one per core.
    on_round
        Called with the record of each finished round.
    **settings
        ``batch_size``, ``local_epochs``, ``local_lr``, ``lr_schedule``, ``optimizer``, ``momentum``, ``nesterov``,
        ``weight_decay``, ``clip_norm``, ``server_lr``, ``personal``, ``weighting``, ``participation``, ``detector``,
        ``engine``, ``device``, ``seed``, ``eval_every``, ``eval_samples`` and ``fine_tune_steps``, as ``fedtaco run
        --help`` explains them.

    Returns
    -------
    Result
        The history and the trained model.

    Raises
    ------
    InvalidInput
        If a setting is not valid, or the model does not fit the samples.
    RunStopped
        If the run diverges or every client is expelled; the error's ``history`` contains the finished rounds.

    Examples
    --------
    >>> import torch
    >>> clients = [(torch.randn(30, 4), torch.randint(0, 3, (30,))) for _ in range(5)]
    >>> result = train(nn.Linear(4, 3), clients, test=clients[0], rounds=2, local_steps=3)
    >>> [record.round for record in result.history]
    [1, 2]
    """
    samples = [_samples(f"Client {number}", data) for number, data in enumerate(clients)]
    if not samples:
        raise InvalidInput("There are no clients; give at least one.")
    require_steps_or_epochs({**settings, "local_steps": local_steps})
    steps = None if local_steps is None else _steps_per_client(local_steps, len(samples))
    given = {**settings, "rounds": rounds, "local_steps": None if steps is None else max(steps)}
    config = check_settings(RunSettings, given)
    tests = _samples_by_client(client_tests, len(samples))
    if config["fine_tune_steps"] and not tests:
        raise InvalidInput(
            "fine_tune_steps has no effect without samples of each client to evaluate on; give some (client_tests)."
        )
    simulator, _ = prepare_simulator(
        config,
        METHODS.instance(method),
        DETECTORS.instance(config["detector"]),
        model,
        samples,
        None if test is None else _samples("The test set", test),
        client_tests=tests,
        metrics=metrics,
        loss=loss,
        steps=steps,
        workers=workers,
    )
    recorder = Recorder(None, config, PartitionRecord.unknown(len(samples)))
    try:
        for finished in simulator.rounds(recorder.begin(simulator.initial_state(), {}, resume=False)):
            recorder.add(finished)
            if on_round is not None:
                on_round(finished.record)
    except RunStopped as stop:
        stop.history = recorder.history
        raise
    evaluations = simulator.evaluate_clients(recorder.state)
    return Result.of(simulator.method, simulator.model, recorder.state, recorder.history, evaluations)


def _samples(owner: str, data: Any) -> Samples:
    try:
        return as_samples(data)
    except InvalidInput as error:
        raise InvalidInput(f"{owner}: {error}") from error


def _samples_by_client(tests: Sequence[Any] | None, clients: int) -> dict[int, Samples]:
    if tests is not None and len(tests) != clients:
        raise InvalidInput(f"client_tests lists {len(tests)} test sets for {clients} clients; give one for each.")
    given = {client: data for client, data in enumerate(tests or ()) if data is not None}
    return {client: _samples(f"client_tests[{client}]", data) for client, data in given.items()}


def _steps_per_client(local_steps: int | Sequence[int], clients: int) -> list[int]:
    steps = [local_steps] * clients if isinstance(local_steps, int) else list(local_steps)
    if len(steps) != clients:
        raise InvalidInput(f"local_steps lists {len(steps)} numbers for {clients} clients; give one for each.")
    if min(steps) < 1:
        raise InvalidInput(f"local_steps is {min(steps)}; it must be a whole number at least 1.")
    return steps
