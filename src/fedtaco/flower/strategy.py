"""The server side: a Flower strategy that runs any method."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Unpack

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from torch import nn

from fedtaco.errors import InvalidInput
from fedtaco.federation import Federation
from fedtaco.flower.arrays import check_dtypes, with_weights
from fedtaco.flower.exchange import Exchange
from fedtaco.flower.log import log
from fedtaco.flower.metrics import MAX_COUNT_RATIO
from fedtaco.flower.node_clients import EvaluateFn, NodeClients, NodePolicy, wait_for_nodes
from fedtaco.flower.wire import refuse_own_keys
from fedtaco.methods import METHODS, Method
from fedtaco.models import FlatModel
from fedtaco.parameters import split_names
from fedtaco.records import PartitionRecord, RoundRecord, RunFolder
from fedtaco.records.formatting import pluralize
from fedtaco.runs.callbacks import Callback, CallbackList, Run, following
from fedtaco.runs.execution import PreparedRun
from fedtaco.runs.recorder import Recorder
from fedtaco.sample_checks import check_weights
from fedtaco.server import Server
from fedtaco.settings.checks import check_setting, check_settings
from fedtaco.settings.declarations import MAX_COUNT, RunSettings, SharedSettings, declared, setting
from fedtaco.settings.run_spec import RunSpec
from fedtaco.trust import DETECTORS, Detector


class StrategySettings(SharedSettings, total=False):
    """Keyword arguments of :class:`FedStrategy`, besides those in its signature."""

    fraction_train: Annotated[float, setting(1.0, "Fraction of the clients in a round.", low=0, open_low=True, high=1)]
    min_train_nodes: Annotated[int, setting(2, "Minimum number of nodes in a round.", low=1)]
    min_available_nodes: Annotated[int, setting(2, "Number of nodes that must be connected.", low=1)]
    weighted_by_key: Annotated[
        str | None, setting(None, "Metric that weights replies, such as num-examples; all count alike by default.")
    ]
    fraction_evaluate: Annotated[
        float, setting(1.0, "Fraction of the connected nodes that evaluates the model.", low=0, high=1)
    ]
    clients: Annotated[
        int | None,
        setting(None, "Number of nodes in the run; those connected at its start by default.", low=1, high=MAX_COUNT),
    ]
    dataset: Annotated[str, setting("own data", "Name of the data in the report.")]
    target: Annotated[float, setting(0.9, "Accuracy for rounds-to-accuracy in the report.", low=0, high=1)]


class FedStrategy:
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
        _refuse_simulated_failures(settings)
        given: dict[str, Any] = check_settings(StrategySettings, settings)
        self.model = model
        self.spec = RunSpec.with_defaults(
            METHODS.instance(method),
            {
                **{name: given[name] for name in (*declared(SharedSettings), "clients", "dataset", "target")},
                "local_steps": local_steps,
                "participation": given["fraction_train"],
                "weighting": "uniform" if given["weighted_by_key"] is None else "samples",
                "partition": "by node",
                "model": type(model).__name__,
            },
            detector=DETECTORS.instance(detector),
            on_nodes=True,
        )
        self.policy = NodePolicy(
            min_train_nodes=given["min_train_nodes"],
            min_available_nodes=max(given["min_available_nodes"], given["min_train_nodes"]),
            weighted_by_key=given["weighted_by_key"],
            fraction_evaluate=given["fraction_evaluate"],
        )
        self._clients: int | None = given["clients"]
        check_dtypes(self._flatten(model).module)
        self.folder = None if checkpoint is None else RunFolder(checkpoint)
        self.overwrite = overwrite
        self.callback = CallbackList([*callbacks, _RoundLog()])
        self.recorder: Recorder | None = None
        self.node_clients: NodeClients | None = None
        """The records and the nodes of the run, once it has begun."""

    def summary(self) -> None:
        """Log the settings of the run."""
        policy, spec, run = self.policy, self.spec, self.spec.settings
        key, cost = policy.weighted_by_key, spec.method.cost
        weighting = f"by {key}, as the nodes state it, but at most {MAX_COUNT_RATIO:g} times the median"
        epochs = "" if run["local_epochs"] is None else f"{pluralize(run['local_epochs'], 'epoch')} in at most "
        lines = [
            f"Method: {spec.method.name}, {spec.method.summary}",
            f"Weighting: {'uniform, all replies count alike' if key is None else weighting}",
            f"Local: {epochs}{pluralize(run['local_steps'], 'step')} of {pluralize(run['batch_size'], 'sample')}, "
            f"{run['optimizer']} with a "
            f"{run['lr_schedule']} learning rate of {run['local_lr']}",
            f"Cohort: {run['participation']:g} of the clients, at least {policy.min_train_nodes}; "
            f"{policy.min_available_nodes} must be connected",
            f"On the wire: {pluralize(cost.down, 'vector')} and {pluralize(cost.scalars_down, 'scalar')} down, "
            f"{cost.up:g} vector{'' if cost.up == 1 else 's'} up; compression: {spec.codec}",
            f"Detector: {spec.detector.name}",
            f"Checkpoint: {'none' if self.folder is None else self.folder.path}",
        ]
        if not spec.work.local_work.is_full:
            lines.insert(3, f"Local work: a share of the steps, {run['local_work']}")
        if run["personal"] is not None:
            lines.insert(3, f"Personal layers, which stay on the nodes: {run['personal']}")
        if note := spec.detector.note(spec.codec):
            lines.append(note)
        for line in lines:
            log.info("\t├── %s", line)
        if self.folder is not None and (cost.memory or run["personal"] is not None):
            log.info(
                "\t├── %s keeps memory on its clients: for an exact resume, give every node a folder of its own, "
                "--node-config 'memory-dir=\"…\"'",
                spec.method.name if cost.memory else "A model with personal layers",
            )

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
        refuse_own_keys("train_config", train_config or ConfigRecord())
        refuse_own_keys("evaluate_config", evaluate_config or ConfigRecord())
        policy = replace(
            self.policy,
            train_config=train_config or ConfigRecord(),
            evaluate_config=evaluate_config or ConfigRecord(),
            evaluate_fn=evaluate_fn,
        )
        model = self._flatten(with_weights(self.model, initial_arrays))
        check_weights(model.module)
        exchange = Exchange(grid, timeout)
        clients = self._client_count(exchange)
        rounds = check_setting(RunSettings, "rounds", num_rounds)
        spec = self.spec.with_settings(clients=clients, rounds=rounds)
        server = Server(
            spec,
            spec.constants(clients, spec.settings["local_steps"]),
            min(clients, max(spec.cohort_size(clients), policy.min_train_nodes)),
        )
        recorder = self.recorder = Recorder(self.folder, spec, PartitionRecord.unknown(clients), every_round=True)
        with recorder.claim(resume=not self.overwrite, overwrite=self.overwrite):
            return self._run(server, model, policy, exchange)

    def _run(self, server: Server, model: FlatModel, policy: NodePolicy, exchange: Exchange) -> Result:
        """Run a federation of nodes, and return what Flower expects of a strategy."""
        recorder = self.recorder
        assert recorder is not None
        engine = f"on {pluralize(server.constants.clients, 'node')}"
        ran_by = {"engine": "flower", "reason": engine, "run": secrets.token_hex(8)}
        nodes = self.node_clients = NodeClients(server, model, policy, exchange, lambda: str(recorder.ran_by["run"]))

        prepared = PreparedRun(
            Federation(server, nodes, model),
            recorder,
            f"flower, {engine}",
            ran_by,
            lambda *_: {"partition_notes": [], "nodes": nodes.nodes.nodes},
        )
        with following(self.callback, [server.spec.config]):
            prepared.execute(self.callback, resume=not self.overwrite)
        nodes.metrics.arrays = nodes.arrays(recorder.state)
        return nodes.metrics

    def _flatten(self, model: nn.Module) -> FlatModel:
        return FlatModel(model, personal=split_names(self.spec.settings["personal"] or ""))

    def _client_count(self, exchange: Exchange) -> int:
        """Return the number of clients: as in the run to resume, as set, or as many as nodes are connected."""
        if self.folder is not None and self.folder.exists() and not self.overwrite:
            return int(self.folder.config()["clients"])
        if self._clients is not None:
            return self._clients
        wanted = self.policy.min_available_nodes
        return len(wait_for_nodes(exchange, lambda connected: len(connected) >= wanted, wanted))


class _RoundLog(Callback):
    """Logs how a run proceeds."""

    def on_run_begin(self, run: Run) -> None:
        if run.history:
            log.info("Continuing after round %d of %d.", len(run.history), run.config["rounds"])

    def on_round_end(self, run: Run, record: RoundRecord) -> None:
        used = record.cohort - len(record.dropped)
        replies = f"{'1 reply' if used == 1 else f'{used} replies'} used"
        replies += f", {len(record.dropped)} dropped" if record.dropped else ""
        accuracy = "" if record.accuracy is None else f", accuracy {record.accuracy:.1%}"
        log.info("Round %d of %d is done: %s%s.", record.round, run.config["rounds"], replies, accuracy)
        if record.warning is not None and all(one.warning is None for one in run.history[:-1]):
            log.warning("Round %d: %s.", record.round, record.warning)

    def on_run_end(self, run: Run, summary: Mapping[str, Any]) -> None:
        if summary["ended_early"] is not None:
            log.info("The run was ended after round %d: %s.", len(run.history), summary["ended_early"])


def _refuse_simulated_failures(settings: Mapping[str, Any]) -> None:
    """Raise InvalidInput for settings that let simulated clients fail."""
    for name in ("client_dropout", "deadline"):
        if settings.get(name) is not None:
            raise InvalidInput(
                f"{name} is for simulated clients; real nodes fail by themselves: omit it, and limit the wait for "
                "replies by the timeout of start()."
            )
