"""The server's half: a Flower strategy that runs any method."""

import copy
import math
import secrets
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any, Unpack

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import nn

from fedtaco.errors import InvalidInput, RunStopped
from fedtaco.flower.deployment import Deployment, NodePolicy, wait_for_nodes
from fedtaco.flower.exchange import Exchange
from fedtaco.flower.log import log
from fedtaco.flower.node_registry import NodeRegistry
from fedtaco.flower.open_round import OpenRound
from fedtaco.flower.replies import error_reason, mean_metrics, metric_shares, one_line
from fedtaco.flower.settings import StrategySettings
from fedtaco.flower.wire import OWN_KEYS, WIRE_SETTINGS, read_metrics, wire_key
from fedtaco.methods import METHODS, Constants, Method
from fedtaco.models import FlatModel
from fedtaco.randomness import generator
from fedtaco.records import PartitionRecord, RunFolder
from fedtaco.runs.recorder import Recorder
from fedtaco.runs.settings import RunSettings, SharedSettings, check_settings, declared
from fedtaco.server import Server, cohort_size
from fedtaco.trust import DETECTORS, Detector
from fedtaco.version import __version__

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


class FedStrategy(Strategy):
    """Runs a method on Flower; the client apps answer with :func:`fedtaco.flower.train`.

    Parameters
    ----------
    method
        A method, such as ``Taco(gamma=0.02)``, or a name.
    model
        The module that is trained; the same as the client apps give to ``train``.
    local_steps
        Steps of a node in a round, K.
    detector
        ``off``, ``guard``, ``paper``, or a detector with its parameters. An expelled node gets no more messages.
    checkpoint
        A run folder. A run that the folder already holds continues after its last finished round;
        ``fedtaco report`` shows it.
    **settings
        - ``batch_size``, ``local_lr``, ``server_lr``, ``seed``: as in :func:`fedtaco.train`; nodes receive them.
        - ``fraction_train``, ``min_train_nodes``, ``min_available_nodes``: the fraction of the clients that is
          asked in a round, the minimum number of them, and how many nodes must be connected.
        - ``weighted_by_key``: the metric that weights a reply, such as ``"num-examples"``; all count alike by
          default.
        - ``fraction_evaluate``: the fraction of the connected nodes that evaluates the model after a round, in
          its own ``@app.evaluate()``.
        - ``clients``: the number of nodes in the run; those connected at its start by default. Other nodes take
          no part.
        - ``dataset``, ``target``: what the report calls the data, and the accuracy it counts rounds to.

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
        detector: Detector | str = "off",
        checkpoint: str | Path | None = None,
        **settings: Unpack[StrategySettings],
    ) -> None:
        self.method, self.model = METHODS.instance(method), model
        self.detector = DETECTORS.instance(detector)
        self.settings: dict[str, Any] = check_settings(StrategySettings, settings)
        own = self.settings
        weighting = "uniform" if own["weighted_by_key"] is None else "samples"
        run_settings: dict[str, Any] = {name: own[name] for name in declared(SharedSettings)}
        run_settings |= {"local_steps": local_steps, "participation": own["fraction_train"], "weighting": weighting}
        self.run_settings = check_settings(RunSettings, run_settings)
        self.policy = NodePolicy(
            method=METHODS.spec(self.method),
            min_train_nodes=own["min_train_nodes"],
            min_available_nodes=max(own["min_available_nodes"], own["min_train_nodes"]),
            weighted_by_key=own["weighted_by_key"],
        )
        self.folder = None if checkpoint is None else RunFolder(checkpoint)
        self.deployment: Deployment | None = None
        self._round: OpenRound | None = None

    def summary(self) -> None:
        """Log how the strategy will run."""
        policy, run = self.policy, self.run_settings
        key, cost = policy.weighted_by_key, self.method.cost
        lines = [
            f"Method: {self.method.name}, {self.method.summary}",
            f"Weighting: {'uniform, all replies count alike' if key is None else f'by {key}, as the nodes state it'}",
            f"Local: {run['local_steps']} steps of {run['batch_size']} samples at a rate of {run['local_lr']}",
            f"Cohort: {run['participation']:g} of the clients, at least {policy.min_train_nodes}; "
            f"{policy.min_available_nodes} must be connected",
            f"On the wire: {cost.down} vectors and {cost.scalars_down} scalars down, {cost.up:g} vectors up",
            f"Detector: {self.detector.name}",
            f"Checkpoint: {'none' if self.folder is None else self.folder.path}",
        ]
        for line in lines:
            log.info("\t├── %s", line)
        if self.folder is not None and cost.memory:
            log.info(
                "\t├── %s keeps memory on its clients: for an exact resume, give every node a folder of its own, "
                "--node-config 'memory-dir=\"…\"'",
                self.method.name,
            )

    # Flower's hooks

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round; they carry the strategy's own model, of which ``arrays`` is a view."""
        taken = sorted(OWN_KEYS & set(config))
        if taken:
            raise InvalidInput(
                f"train_config sets '{taken[0]}', which FedStrategy itself sends to the nodes; rename it, or pass "
                "it to FedStrategy if that is what is meant."
            )
        self._round = self._running().open_round()
        return self._round.train_messages(config)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the replies in, one at a time, and aggregate them."""
        deployment, opened = self._running(), self._open_round()
        for reply in replies:
            opened.take(reply)
        metrics = opened.conclude()
        deployment.state = opened.outcome.state
        return deployment.arrays(), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return one message for each of the nodes that evaluate."""
        deployment, fraction = self._running(), self.settings["fraction_evaluate"]
        present = deployment.present_clients(grid) if fraction else []
        if not present:
            return []
        shuffled = generator(self.settings["seed"], "evaluate", server_round).permutation(len(present))
        chosen = sorted(shuffled[: cohort_size(fraction, len(present))].tolist())
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({**config, wire_key("round"): server_round})})
        return [deployment.message(content, present[place], MessageType.EVALUATE, server_round) for place in chosen]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the mean of what the nodes measured."""
        metrics = []
        for reply in replies:
            if reply.has_error():
                node, reason = self._running().exchange.node_of(reply), one_line(error_reason(reply))
                log.warning("Round %d: node %d did not evaluate: %s.", server_round, node, reason)
            else:
                metrics.append(read_metrics(reply.content))
        return mean_metrics(metrics, metric_shares(metrics, self.policy.weighted_by_key)) if metrics else None

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

        Parameters are Flower's; ``timeout`` bounds each wait, for nodes and for replies. The ``accuracy`` and
        ``loss`` of ``evaluate_fn``, or else of the nodes' own evaluation, are recorded.
        """
        self.summary()
        model = FlatModel(_with_weights(self.model, initial_arrays))
        exchange = Exchange(grid, timeout)
        server = self._server(num_rounds, self._client_count(exchange))
        clients = server.constants.clients
        recorder = Recorder(self.folder, self._config(server), PartitionRecord.unknown(clients), every_round=True)
        ran_by = {"engine": "flower", "reason": f"on {clients} nodes", "run": secrets.token_hex(8)}
        with recorder.claim(resume=True, overwrite=False):
            initial = server.initial_state(model.vector.clone(), model.buffers.clone())
            state = recorder.begin(initial, ran_by, resume=True)
            nodes = NodeRegistry.from_arrays(clients, recorder.extra)
            sent = {**self.run_settings, "clients": clients, "rounds": num_rounds}
            settings = {name: sent[name] for name in WIRE_SETTINGS}
            run = self.deployment = Deployment(self.policy, settings, server, model, recorder, exchange, state, nodes)
            result = Result(arrays=run.arrays())
            if run.state.round:
                log.info("Continuing after round %d of %d.", run.state.round, num_rounds)
            elif evaluate_fn is not None:
                _put(result.evaluate_metrics_serverapp, 0, evaluate_fn(0, result.arrays))
            try:
                for number in range(run.state.round + 1, num_rounds + 1):
                    self._run_round(number, result, train_config, evaluate_config, evaluate_fn)
            except RunStopped as stop:
                run.finish(stop)
                raise
            run.finish(None)
            return result

    def _run_round(
        self,
        number: int,
        result: Result,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: EvaluateFn | None,
    ) -> None:
        deployment = self._running()
        exchange, num_rounds = deployment.exchange, deployment.server.constants.rounds
        messages = list(self.configure_train(number, result.arrays, train_config or ConfigRecord(), exchange.grid))
        log.info("Round %d of %d: %d nodes are asked.", number, num_rounds, len(messages))
        arrays, metrics = self.aggregate_train(number, exchange.replies(messages))
        assert arrays is not None
        result.arrays = arrays
        _put(result.train_metrics_clientapp, number, metrics)
        questions = list(self.configure_evaluate(number, arrays, evaluate_config or ConfigRecord(), exchange.grid))
        measured = self.aggregate_evaluate(number, exchange.replies(questions))
        _put(result.evaluate_metrics_clientapp, number, measured)
        central = None if evaluate_fn is None else evaluate_fn(number, arrays)
        _put(result.evaluate_metrics_serverapp, number, central)
        scores = _scores(central if central is not None else measured)
        if not all(math.isfinite(score) for score in scores.values() if score is not None):
            raise deployment.server.diverged(number, "the global model's loss is not finite")
        deployment.close_round(self._open_round(), **scores)
        shown = "" if scores["accuracy"] is None else f", accuracy {scores['accuracy']:.1%}"
        log.info("Round %d of %d is done: %s%s.", number, num_rounds, self._open_round().describe(), shown)

    def _running(self) -> Deployment:
        if self.deployment is None:
            raise InvalidInput("FedStrategy runs its rounds itself; call its own start().")
        return self.deployment

    def _open_round(self) -> OpenRound:
        assert self._round is not None
        return self._round

    def _server(self, num_rounds: int, clients: int) -> Server:
        run = check_settings(RunSettings, {**self.run_settings, "rounds": num_rounds})
        constants = Constants(clients, num_rounds, run["local_steps"], run["local_lr"], run["server_lr"])
        size = min(clients, max(cohort_size(run["participation"], clients), self.policy.min_train_nodes))
        return Server(self.method, constants, run["seed"], size, self.detector)

    def _config(self, server: Server) -> dict[str, Any]:
        """Return the settings as the run folder stores them."""
        names = (*declared(SharedSettings), "local_steps", "participation", "weighting")
        run = {name: self.run_settings[name] for name in names if self.run_settings[name] is not None}
        return {
            "fedtaco": __version__,
            **run,
            "rounds": server.constants.rounds,
            "detector": DETECTORS.spec(self.detector),
            "engine": "flower",
            "method": self.policy.method,
            "dataset": self.settings["dataset"],
            "model": type(self.model).__name__,
            "partition": "by node",
            "clients": server.constants.clients,
            "target": self.settings["target"],
            "parameters": {**self.method.parameters(), **self.detector.parameters()},
        }

    def _client_count(self, exchange: Exchange) -> int:
        """Return the number of clients: that of the run to resume, the one that was set, or that of the nodes."""
        if self.folder is not None and self.folder.exists():
            return int(self.folder.config()["clients"])
        if self.settings["clients"] is not None:
            return int(self.settings["clients"])
        wanted = self.policy.min_available_nodes
        return len(wait_for_nodes(exchange, lambda connected: len(connected) >= wanted, wanted))


def _with_weights(model: nn.Module, arrays: ArrayRecord) -> nn.Module:
    """Return a copy of the model with the given weights."""
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
    """Return accuracy and loss, if they were measured."""
    found = {} if metrics is None else metrics
    values = {name: found.get(name) for name in ("accuracy", "loss")}
    return {name: float(value) if isinstance(value, int | float) else None for name, value in values.items()}
