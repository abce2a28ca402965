"""The server's half: a Flower strategy that runs any method."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any, cast

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import nn

from fedtaco import __version__
from fedtaco.errors import InvalidInput, RunStopped
from fedtaco.experiment.build import as_method, build_detector, method_spec, parameters_of
from fedtaco.experiment.config import Training, checked
from fedtaco.flower.collecting import error_reason, mean_metrics, shares_of, short
from fedtaco.flower.exchange import Exchange
from fedtaco.flower.log import log
from fedtaco.flower.recording import Recording
from fedtaco.flower.running import Running, Terms, wait_for_nodes
from fedtaco.flower.wire import OWN_KEYS, metrics_of
from fedtaco.methods import Method, Setting
from fedtaco.models import FlatModel
from fedtaco.randomness import generator
from fedtaco.records import RunFolder
from fedtaco.rounds import Coordinator, cohort_size
from fedtaco.trust import DETECTORS, Detector

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


class FedStrategy(Strategy):
    """Runs a method on Flower; the client apps answer with :func:`fedtaco.flower.train`.

    Parameters
    ----------
    method
        A method, such as ``Taco(gamma=0.02)``, or a name.
    model
        The module that is trained; the same as the client apps give to ``train``.
    local_steps, batch_size, local_lr, server_lr
        As in :func:`fedtaco.train`; the nodes are told.
    fraction_train, min_train_nodes, min_available_nodes
        What part of the clients is asked in a round, how many at least, and how many must be connected.
    weighted_by_key
        The metric of a reply by which it counts, such as ``"num-examples"``; ``None`` counts all alike.
    fraction_evaluate
        What part of the connected nodes evaluates the model after a round, in its own ``@app.evaluate()``.
    clients
        How many nodes the run is for; those connected when it begins unless given. A node beyond them
        takes no part.
    detector
        ``off``, ``guard``, ``paper``, or a detector with its parameters. An expelled node gets no more messages.
    checkpoint
        A run folder. A run that the folder holds already goes on after its last finished round;
        ``fedtaco report`` shows it.
    dataset, target
        What the report calls the data, and the accuracy to which it counts rounds.
    seed
        Of cohorts and batches.

    Examples
    --------
    In a server app::

        strategy = FedStrategy(method=Taco(), model=Net(), local_steps=20, local_lr=0.05)
        result = strategy.start(grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=10)
    """

    def __init__(
        self,
        method: Method | type[Method] | str,
        model: nn.Module,
        *,
        local_steps: int,
        batch_size: int = 64,
        local_lr: float = 0.01,
        server_lr: float | None = None,
        fraction_train: float = 1.0,
        min_train_nodes: int = 2,
        min_available_nodes: int = 2,
        weighted_by_key: str | None = None,
        fraction_evaluate: float = 1.0,
        clients: int | None = None,
        detector: Detector | str = "off",
        checkpoint: str | Path | None = None,
        dataset: str = "own data",
        target: float = 0.9,
        seed: int = 0,
    ) -> None:
        self.method, self.model = as_method(method), model
        self.detector = build_detector(detector, {}) if isinstance(detector, str) else detector
        self.settings: dict[str, Any] = {
            "local_steps": local_steps,
            "batch_size": batch_size,
            "local_lr": local_lr,
            "server_lr": server_lr,
            "weighting": "uniform" if weighted_by_key is None else "samples",
            "participation": fraction_train,
            "detector": detector if isinstance(detector, str) else _name_of(detector),
            "seed": seed,
        }
        if not 0 < fraction_train <= 1:
            raise InvalidInput(f"fraction_train is {fraction_train}; it must be above 0 and at most 1.")
        checked(Training, {**self.settings, "rounds": 1})
        for name, value in (("min_train_nodes", min_train_nodes), ("min_available_nodes", min_available_nodes)):
            if value < 1:
                raise InvalidInput(f"{name} is {value}; it must be at least 1.")
        if clients is not None and clients < 1:
            raise InvalidInput(f"clients is {clients}; it must be at least 1.")
        for name, part in (("fraction_evaluate", fraction_evaluate), ("target", target)):
            if not 0 <= part <= 1:
                raise InvalidInput(f"{name} is {part}; it must be from 0 to 1.")
        self.terms = Terms(
            method=method_spec(self.method),
            parameters=parameters_of(self.method, None),
            batch_size=batch_size,
            min_train_nodes=min_train_nodes,
            min_available_nodes=max(min_available_nodes, min_train_nodes),
            weighted_by_key=weighted_by_key,
        )
        self.fraction_evaluate, self.clients = fraction_evaluate, clients
        self.folder = None if checkpoint is None else RunFolder(checkpoint)
        self.dataset, self.target, self.seed = dataset, target, seed
        self._run: Running | None = None

    def summary(self) -> None:
        """Say how the strategy will run."""
        terms, settings = self.terms, self.settings
        key = terms.weighted_by_key
        cost = self.method.cost
        lines = [
            f"Method: {self.method.name}, {self.method.summary}",
            f"Weighting: {'uniform, all replies count alike' if key is None else f'by {key}, as the nodes state it'}",
            f"Local: {settings['local_steps']} steps of {terms.batch_size} samples at a rate of {settings['local_lr']}",
            f"Cohort: {settings['participation']:g} of the clients, at least {terms.min_train_nodes}; "
            f"{terms.min_available_nodes} must be connected",
            f"On the wire: {cost.down} vectors and {cost.scalars_down} numbers down, {cost.up:g} vectors up",
            f"Detector: {settings['detector']}",
            f"Checkpoint: {'none' if self.folder is None else self.folder.path}",
        ]
        for line in lines:
            log.info("\t├── %s", line)
        if self.folder is not None and cost.memory:
            log.info(
                "\t├── %s remembers on its clients: for an exact resume, give every node a folder of its own, "
                "--node-config 'memory-dir=\"…\"'",
                self.method.name,
            )

    # Flower's hooks

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of a round; the model that is sent is the strategy's own, of which ``arrays`` is a view."""
        run = self._running()
        taken = sorted(OWN_KEYS & set(config))
        if taken:
            raise InvalidInput(
                f"train_config sets '{taken[0]}', by which FedStrategy itself tells the nodes something; rename it, or "
                "give it to FedStrategy if that is what is meant."
            )
        run.begin_round()
        if self.method.surveys and not run.survey(config):
            return []
        return run.messages(run.coordinator.order(run.state, torch.tensor(run.cohort)), config)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the replies in, one at a time, and aggregate them."""
        run = self._running()
        for reply in replies:
            run.take(reply)
        metrics = run.conclude()
        return run.arrays(run.state.server.weights), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message for each of the nodes that evaluate."""
        run = self._running()
        present = run.present(grid) if self.fraction_evaluate else []
        if not present:
            return []
        order = generator(self.seed, "evaluate", server_round).permutation(len(present))
        chosen = sorted(order[: cohort_size(self.fraction_evaluate, len(present))].tolist())
        told = ConfigRecord({**config, "server-round": server_round})
        content = RecordDict({"arrays": arrays, "config": told})
        return [run.message(content, present[place], MessageType.EVALUATE, server_round) for place in chosen]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean of what the nodes measured."""
        run, metrics = self._running(), []
        for reply in replies:
            if reply.has_error():
                node = run.exchange.node_of(reply)
                log.warning("Round %d: node %d did not evaluate: %s.", server_round, node, short(error_reason(reply)))
            else:
                metrics.append(metrics_of(reply.content))
        return mean_metrics(metrics, shares_of(metrics, self.terms.weighted_by_key)) if metrics else None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> Result:
        """Run all rounds, or those that are left after the checkpoint.

        As in Flower; ``timeout`` bounds each wait, for nodes and for replies. What ``evaluate_fn`` gives as
        ``accuracy`` and ``loss``, or else the nodes' own evaluation, is recorded.
        """
        self.summary()
        model = FlatModel(_loaded(self.model, initial_arrays))
        exchange = Exchange(grid, timeout)
        coordinator = self._coordinator(num_rounds, self._count(exchange))
        recording = Recording(self.folder, self._config(coordinator.setting), coordinator.setting.clients)
        with recording.held():
            state, members = recording.begin(coordinator.begin(model.vector.clone(), model.buffers.clone()))
            run = self._run = Running(self.terms, coordinator, model, recording, exchange, state, members)
            return self._rounds(run, num_rounds, train_config, evaluate_config, evaluate_fn)

    def _rounds(
        self,
        run: Running,
        num_rounds: int,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: EvaluateFn | None,
    ) -> Result:
        result = Result(arrays=run.arrays(run.state.server.weights))
        if run.state.round:
            log.info("Going on after round %d of %d.", run.state.round, num_rounds)
        elif evaluate_fn is not None:
            _put(result.evaluate_metrics_serverapp, 0, evaluate_fn(0, result.arrays))
        try:
            for number in range(run.state.round + 1, num_rounds + 1):
                self._play(number, num_rounds, result, train_config, evaluate_config, evaluate_fn)
        except RunStopped as stop:
            run.end(str(stop))
            raise
        run.end(None)
        return result

    def _play(
        self,
        number: int,
        num_rounds: int,
        result: Result,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: EvaluateFn | None,
    ) -> None:
        run, grid = self._running(), self._running().exchange.grid
        messages = list(self.configure_train(number, result.arrays, train_config or ConfigRecord(), grid))
        log.info("Round %d of %d: %d nodes are asked.", number, num_rounds, len(messages))
        arrays, metrics = self.aggregate_train(number, run.exchange.replies(messages))
        assert arrays is not None
        result.arrays = arrays
        _put(result.train_metrics_clientapp, number, metrics)
        questions = list(self.configure_evaluate(number, arrays, evaluate_config or ConfigRecord(), grid))
        measured = self.aggregate_evaluate(number, run.exchange.replies(questions))
        _put(result.evaluate_metrics_clientapp, number, measured)
        central = None if evaluate_fn is None else evaluate_fn(number, arrays)
        _put(result.evaluate_metrics_serverapp, number, central)
        scores = _scores(central if central is not None else measured)
        if not all(math.isfinite(score) for score in scores.values() if score is not None):
            raise run.coordinator.diverged(number, "the global model's loss is not finite")
        run.end_round(scores["accuracy"], scores["loss"])
        shown = "" if scores["accuracy"] is None else f", accuracy {scores['accuracy']:.1%}"
        log.info("Round %d of %d is done: %s%s.", number, num_rounds, run.outcome(), shown)

    def _running(self) -> Running:
        if self._run is None:
            raise InvalidInput("FedStrategy plays its rounds itself; call its own start().")
        return self._run

    def _coordinator(self, num_rounds: int, clients: int) -> Coordinator:
        settings = checked(Training, {**self.settings, "rounds": num_rounds})
        setting = Setting(clients, num_rounds, settings.local_steps, settings.local_lr, settings.server_lr)
        size = min(clients, max(cohort_size(settings.participation, clients), self.terms.min_train_nodes))
        return Coordinator(self.method, setting, settings.seed, size, self.detector)

    def _config(self, setting: Setting) -> dict[str, Any]:
        """As it stands in the run folder."""
        settings = checked(Training, {**self.settings, "rounds": setting.rounds})
        return {
            "fedtaco": __version__,
            **settings.model_dump(exclude_none=True, exclude={"device"}),
            "engine": "flower",
            "method": self.terms.method,
            "dataset": self.dataset,
            "model": type(self.model).__name__,
            "partition": "by node",
            "clients": setting.clients,
            "target": self.target,
            "parameters": parameters_of(self.method, cast(Any, self.detector)),
        }

    def _count(self, exchange: Exchange) -> int:
        """How many clients there are: as many as there were, as many as are said, or as many as there are nodes."""
        if self.folder is not None and self.folder.exists():
            return int(self.folder.config()["clients"])
        if self.clients is not None:
            return self.clients
        wanted = self.terms.min_available_nodes
        return len(wait_for_nodes(exchange, lambda connected: len(connected) >= wanted, wanted))


def _name_of(detector: Detector) -> str:
    names = [name for name, kind in DETECTORS.items() if kind is type(detector)]
    return names[0] if names else type(detector).__name__


def _loaded(model: nn.Module, arrays: ArrayRecord) -> nn.Module:
    """A copy of the model with the given weights."""
    module = copy.deepcopy(model)
    try:
        module.load_state_dict(arrays.to_torch_state_dict())
    except RuntimeError as error:
        raise InvalidInput(f"initial_arrays are not those of the model that FedStrategy was given: {error}") from error
    return module


def _put(results: MutableMapping[int, MetricRecord], number: int, metrics: MetricRecord | None) -> None:
    if metrics is not None:
        results[number] = metrics


def _scores(metrics: MetricRecord | None) -> dict[str, float | None]:
    """Accuracy and loss, where they were measured."""
    found = {} if metrics is None else metrics
    values = {name: found.get(name) for name in ("accuracy", "loss")}
    return {name: float(value) if isinstance(value, int | float) else None for name, value in values.items()}
