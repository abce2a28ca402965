"""The server side: a Flower strategy that runs any method."""

import secrets
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import nn

from fedtaco.codecs import parse_codec
from fedtaco.errors import InvalidInput, RunStopped, StopTraining
from fedtaco.flower.arrays import check_dtypes, with_weights
from fedtaco.flower.deployment import Deployment, NodePolicy, wait_for_nodes
from fedtaco.flower.evaluation import average_evaluations, evaluation_messages, recorded_scores
from fedtaco.flower.exchange import Exchange
from fedtaco.flower.log import log
from fedtaco.flower.metrics import MAX_COUNT_RATIO
from fedtaco.flower.node_registry import NodeRegistry
from fedtaco.flower.open_round import OpenRound
from fedtaco.flower.settings import StrategySettings, check_clipping, check_method, refuse_simulated_failures
from fedtaco.flower.wire import WIRE_SETTINGS, refuse_own_keys
from fedtaco.methods import METHODS, Method
from fedtaco.models import FlatModel
from fedtaco.parameters import split_names
from fedtaco.records import PartitionRecord, RoundRecord, RunFolder
from fedtaco.records.formatting import pluralize
from fedtaco.run_state import RunState
from fedtaco.runs.callbacks import Callback, CallbackList, following
from fedtaco.runs.constants import make_constants
from fedtaco.runs.recorder import Recorder
from fedtaco.runs.setting_checks import check_settings
from fedtaco.runs.settings import RunSettings, SharedSettings, declared
from fedtaco.sample_checks import check_weights
from fedtaco.server import Server, cohort_size
from fedtaco.trust import DETECTORS, Detector
from fedtaco.unequal_work import parse_local_work
from fedtaco.version import __version__

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
"""Evaluates the global model on the server, given the round and the model."""


class FedStrategy(Strategy):
    """Runs a method on Flower. Client apps must reply with :func:`fedtaco.flower.train`.

    Parameters
    ----------
    method
        A method, such as ``Taco(gamma=0.02)``, or its name.
    model
        The module to train; client apps must pass the same one to ``fedtaco.flower.train``.
    local_steps
        Local steps of each node in a round, K. With ``local_epochs``, the largest number of steps of a node: each node
        takes as many as the epochs of its own samples require, but not more.
    detector
        ``norm``, ``guard``, ``paper``, ``off``, or a detector with its parameters. An expelled node gets no more
        messages.
    checkpoint
        The run folder, which ``fedtaco report`` can show. If the folder already contains this run, the run
        continues after its last finished round.
    overwrite
        Whether to replace the run in the folder instead of continuing it.
    callbacks
        Objects that follow the run on the server, such as ``EarlyStopping(patience=5)``; as in :func:`fedtaco.train`.
    **settings
        - ``batch_size``, ``local_epochs``, ``local_lr``, ``lr_schedule``, ``optimizer``, ``momentum``, ``nesterov``,
          ``weight_decay``, ``clip_norm``, ``server_lr``, ``seed``: as in :func:`fedtaco.train`; nodes receive them.
        - ``compress``: the codec of uploads, such as ``"q8"``; client apps must allow one of your own.
        - ``local_work``: the share of its steps that each node takes, such as ``"uniform:0.3,1.0"``; as in
          :func:`fedtaco.train`.
        - ``personal``: the layers that each node keeps for itself, as patterns such as ``"head.*"``; client apps then
          evaluate the model of :func:`fedtaco.flower.receive_model`.
        - ``fraction_train``, ``min_train_nodes``, ``min_available_nodes``: the fraction of the clients in a round,
          the minimum number of clients in a round, and the number of nodes that must be connected.
        - ``weighted_by_key``: the metric by which replies are weighted, such as ``"num-examples"``; all count alike
          by default.
        - ``fraction_evaluate``: the fraction of the connected nodes that evaluates the model, in the
          ``@app.evaluate()`` of the client app.
        - ``eval_every``: the number of rounds between two evaluations, by the nodes and by ``evaluate_fn``; the last
          round is always evaluated.
        - ``clients``: the number of nodes in the run; those connected at its start by default. Other nodes take
          no part.
        - ``dataset``, ``target``: the name of the data in the report, and the accuracy for rounds-to-accuracy.

    Raises
    ------
    InvalidInput
        If there is no such method, detector or setting, or a value is not valid.

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
        detector: Detector | type[Detector] | str = "norm",
        checkpoint: str | Path | None = None,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        **settings: Unpack[StrategySettings],
    ) -> None:
        self.method, self.model = METHODS.instance(method), model
        self.detector = DETECTORS.instance(detector)
        refuse_simulated_failures(settings)
        self.settings: dict[str, Any] = check_settings(StrategySettings, settings)
        check_dtypes(self._flatten(model).module)
        own = self.settings
        weighting = "uniform" if own["weighted_by_key"] is None else "samples"
        run_settings: dict[str, Any] = {name: own[name] for name in declared(SharedSettings)}
        run_settings |= {"local_steps": local_steps, "participation": own["fraction_train"], "weighting": weighting}
        self.run_settings = check_settings(RunSettings, run_settings)
        self.local_work = parse_local_work(own["local_work"])
        self.codec = parse_codec(own["compress"])
        check_method(self.method, own)
        check_clipping(self.method, self.detector)
        self.policy = NodePolicy(
            method=METHODS.spec(self.method),
            min_train_nodes=own["min_train_nodes"],
            min_available_nodes=max(own["min_available_nodes"], own["min_train_nodes"]),
            weighted_by_key=own["weighted_by_key"],
        )
        self.folder = None if checkpoint is None else RunFolder(checkpoint)
        self.overwrite = overwrite
        self.callback = CallbackList(callbacks)
        self.deployment: Deployment | None = None
        self._round: OpenRound | None = None

    def summary(self) -> None:
        """Log the settings of the run."""
        policy, run = self.policy, self.run_settings
        key, cost = policy.weighted_by_key, self.method.cost
        weighting = f"by {key}, as the nodes state it, but at most {MAX_COUNT_RATIO:g} times the median"
        epochs = "" if run["local_epochs"] is None else f"{pluralize(run['local_epochs'], 'epoch')} in at most "
        lines = [
            f"Method: {self.method.name}, {self.method.summary}",
            f"Weighting: {'uniform, all replies count alike' if key is None else weighting}",
            f"Local: {epochs}{pluralize(run['local_steps'], 'step')} of {pluralize(run['batch_size'], 'sample')}, "
            f"{run['optimizer']} with a "
            f"{run['lr_schedule']} learning rate of {run['local_lr']}",
            f"Cohort: {run['participation']:g} of the clients, at least {policy.min_train_nodes}; "
            f"{policy.min_available_nodes} must be connected",
            f"On the wire: {pluralize(cost.down, 'vector')} and {pluralize(cost.scalars_down, 'scalar')} down, "
            f"{cost.up:g} vector{'' if cost.up == 1 else 's'} up; compression: {self.codec}",
            f"Detector: {self.detector.name}",
            f"Checkpoint: {'none' if self.folder is None else self.folder.path}",
        ]
        if not self.local_work.is_full:
            lines.insert(3, f"Local work: a share of the steps, {run['local_work']}")
        if run["personal"] is not None:
            lines.insert(3, f"Personal layers, which stay on the nodes: {run['personal']}")
        if note := self.detector.note(self.codec):
            lines.append(note)
        for line in lines:
            log.info("\t├── %s", line)
        if self.folder is not None and (cost.memory or run["personal"] is not None):
            log.info(
                "\t├── %s keeps memory on its clients: for an exact resume, give every node a folder of its own, "
                "--node-config 'memory-dir=\"…\"'",
                self.method.name if cost.memory else "A model with personal layers",
            )

    # Flower's hooks

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round. They contain the strategy's own copy of the model; ``arrays`` is not read."""
        refuse_own_keys("train_config", config)
        self._round = self._running().open_round()
        return self._round.train_messages(config)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Collect the replies, one at a time, and return the new global model and the mean metrics of the replies."""
        deployment, opened = self._running(), self._open_round()
        for reply in replies:
            opened.take(reply)
        metrics = opened.conclude()
        deployment.state = opened.outcome.state
        return deployment.arrays(), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return one message for each node that evaluates the model."""
        refuse_own_keys("evaluate_config", config)
        fraction = self.settings["fraction_evaluate"]
        return evaluation_messages(self._open_round(), grid, arrays, config, fraction)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the weighted means of the metrics that the nodes measured."""
        return average_evaluations(self._open_round(), replies)

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

        Parameters
        ----------
        grid
            Flower's connection to the nodes.
        initial_arrays
            The weights of the model before the first round.
        num_rounds
            Number of rounds, T.
        timeout
            Maximum number of seconds to wait for nodes to connect, and for the replies to a set of messages.
        train_config, evaluate_config
            Further entries of the ``config`` that nodes receive with messages to train and to evaluate.
        evaluate_fn
            Evaluates the global model on the server, before the first round and after each round that is evaluated.
            The run records the ``accuracy`` and ``loss`` that it returns, or else those that the nodes measured, and
            all other numbers that it returns as ``metrics``.

        Returns
        -------
        Result
            The final model, and the metrics of the rounds that were run, as in Flower's own strategies.

        Raises
        ------
        InvalidInput
            If the weights do not fit the model, a setting is not valid, or ``train_config`` has a reserved key.
        RunStopped
            If the run cannot continue: it diverged, too few nodes are connected, or client apps do not use
            :func:`fedtaco.flower.train`. Also if no reply could be used in any round.
        """
        self.summary()
        model = self._flatten(with_weights(self.model, initial_arrays))
        check_weights(model.module)
        exchange = Exchange(grid, timeout)
        server = self._server(num_rounds, self._client_count(exchange))
        clients = server.constants.clients
        recorder = Recorder(self.folder, self._config(server), PartitionRecord.unknown(clients), every_round=True)
        ran_by = {"engine": "flower", "reason": f"on {pluralize(clients, 'node')}", "run": secrets.token_hex(8)}
        with recorder.claim(resume=not self.overwrite, overwrite=self.overwrite):
            initial = server.initial_state(model.vector.clone(), model.buffers.clone())
            memory = self.method.client_memory(initial.server.weights, server.constants)
            state = recorder.begin(initial, ran_by, resume=not self.overwrite, client_memory=memory)
            nodes = NodeRegistry.from_arrays(clients, recorder.extra)
            sent = {**self.run_settings, "clients": clients, "rounds": num_rounds}
            settings = {name: sent[name] for name in WIRE_SETTINGS}
            run = self.deployment = Deployment(
                self.policy, settings, self.local_work, server, model, recorder, exchange, state, nodes
            )
            result = Result(arrays=run.arrays())
            if run.state.round:
                log.info("Continuing after round %d of %d.", run.state.round, num_rounds)
            elif evaluate_fn is not None:
                _store_metrics(result.evaluate_metrics_serverapp, 0, evaluate_fn(0, result.arrays))
            ending: RunStopped | StopTraining | None = None
            followed = run.as_run()
            with following(self.callback, [recorder.config]):
                try:
                    self.callback.on_run_begin(followed)
                    for number in range(run.state.round + 1, num_rounds + 1):
                        record = self._run_round(number, result, train_config, evaluate_config, evaluate_fn)
                        self.callback.on_round_end(followed, record)
                except (RunStopped, StopTraining) as stop:
                    ending = stop
                if not isinstance(ending, RunStopped):
                    ending = run.untrained() or ending
                self.callback.on_run_end(followed, run.finish(ending))
            if isinstance(ending, RunStopped):
                raise ending
            if ending is not None:
                log.info("The run was ended after round %d: %s.", run.state.round, ending)
            return result

    def _run_round(
        self,
        number: int,
        result: Result,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: EvaluateFn | None,
    ) -> RoundRecord:
        deployment = self._running()
        exchange, num_rounds = deployment.exchange, deployment.server.constants.rounds
        messages = list(self.configure_train(number, result.arrays, train_config or ConfigRecord(), exchange.grid))
        log.info("Round %d of %d: training on %s.", number, num_rounds, pluralize(len(messages), "node"))
        _, metrics = self.aggregate_train(number, exchange.replies(messages))
        _store_metrics(result.train_metrics_clientapp, number, metrics)

        def measure(state: RunState) -> dict[str, Any]:
            deployment.state = state
            self.callback.on_evaluation_begin(deployment.as_run(), number)
            arrays = deployment.arrays()
            requests = list(self.configure_evaluate(number, arrays, evaluate_config or ConfigRecord(), exchange.grid))
            measured = self.aggregate_evaluate(number, exchange.replies(requests))
            _store_metrics(result.evaluate_metrics_clientapp, number, measured)
            central = None if evaluate_fn is None else evaluate_fn(number, arrays)
            _store_metrics(result.evaluate_metrics_serverapp, number, central)
            return recorded_scores(measured, central, self._open_round().node_losses)

        record = deployment.close_round(self._open_round(), measure).record
        result.arrays = deployment.arrays()
        shown = "" if record.accuracy is None else f", accuracy {record.accuracy:.1%}"
        log.info("Round %d of %d is done: %s%s.", number, num_rounds, self._open_round().describe(), shown)
        return record

    def _flatten(self, model: nn.Module) -> FlatModel:
        return FlatModel(model, personal=split_names(self.settings["personal"] or ""))

    def _running(self) -> Deployment:
        """Return the run in progress."""
        if self.deployment is None:
            raise InvalidInput("No run is in progress; call start() of FedStrategy, which runs the rounds.")
        return self.deployment

    def _open_round(self) -> OpenRound:
        """Return the round in progress."""
        assert self._round is not None
        return self._round

    def _server(self, num_rounds: int, clients: int) -> Server:
        """Return the server of a run; raise InvalidInput if a setting is not valid."""
        run = check_settings(RunSettings, {**self.run_settings, "rounds": num_rounds})
        constants = make_constants(run, clients=clients, rounds=num_rounds, local_steps=run["local_steps"])
        size = min(clients, max(cohort_size(run["participation"], clients), self.policy.min_train_nodes))
        return Server(self.method, constants, run["seed"], size, self.detector, run["eval_every"], self.codec)

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
        """Return the number of clients: as in the run to resume, as set, or as many as nodes are connected."""
        if self.folder is not None and self.folder.exists() and not self.overwrite:
            return int(self.folder.config()["clients"])
        if self.settings["clients"] is not None:
            return int(self.settings["clients"])
        wanted = self.policy.min_available_nodes
        return len(wait_for_nodes(exchange, lambda connected: len(connected) >= wanted, wanted))


def _store_metrics(results: MutableMapping[int, MetricRecord], number: int, metrics: MetricRecord | None) -> None:
    if metrics is not None:
        results[number] = metrics
