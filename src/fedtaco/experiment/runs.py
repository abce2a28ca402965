"""Run one experiment, with or without a run folder, from the start or from where it stopped."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from fedtaco.data import Data, Indices, Partition, TensorSamples, dataset_info, hold_out, load_dataset, partition_of
from fedtaco.engines import Choice
from fedtaco.errors import InvalidInput, RunStopped
from fedtaco.experiment.build import as_method, build_detector, build_method, method_spec, parameters_of
from fedtaco.experiment.config import Experiment
from fedtaco.experiment.result import Result, load_model
from fedtaco.experiment.saving import Saving, last_state
from fedtaco.experiment.training import assemble, result_of
from fedtaco.experiment.versions import keep_versions, versions
from fedtaco.experiment.watching import Watcher
from fedtaco.federation import Federation
from fedtaco.methods import Method
from fedtaco.models import build_model
from fedtaco.randomness import torch_seed
from fedtaco.records import Arrays, History, RoundRecord, RunFolder, Split
from fedtaco.report import label_counts, summarize
from fedtaco.trust import Behaviour, Misfits, choose_clients


@dataclass(frozen=True)
class Manner:
    """How runs are done, which changes none of their results."""

    resume: bool = False
    """Go on with what the folder holds."""
    overwrite: bool = False
    """Replace what the folder holds."""
    data_dir: str | Path | None = None
    """Where datasets are looked for."""
    workers: int | None = None
    """Processes of the engines ``pool`` and ``batched``."""

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise InvalidInput("Either go on with a run (resume) or replace it (overwrite), not both.")


def run(
    method: Method | type[Method] | str = "taco",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    data_dir: str | Path | None = None,
    workers: int | None = None,
    on_round: Callable[[RoundRecord], None] | None = None,
    **settings: Any,
) -> Result:
    """Run a method on a named dataset.

    ``settings`` are the fields of :class:`Experiment`: dataset, model, partition, clients, rounds,
    local_steps, batch_size, local_lr, server_lr, weighting, participation, freeloaders, behaviour, detector,
    validation, seed, target, engine, device and parameters. With ``out`` everything is recorded in
    that run folder; ``data_dir`` is where datasets are looked for, ``workers`` how many processes an engine may have.

    >>> result = run("fedavg", dataset="digits", rounds=1, local_steps=2)
    >>> len(result.history)
    1
    """
    if not isinstance(method, str):
        method = as_method(method)
        own = parameters_of(method, None)
        settings["parameters"] = {**settings.get("parameters", {}), **own}
        method = method_spec(method)
    config = Experiment.of(method=method, **settings)
    folder = None if out is None else RunFolder(out)

    class CallsBack(Watcher):
        def round_done(self, experiment: Experiment, record: RoundRecord) -> None:
            if on_round is not None:
                on_round(record)

    return run_experiment(config, folder, Manner(resume, overwrite, data_dir, workers), CallsBack())


def run_experiment(config: Experiment, folder: RunFolder | None, manner: Manner, watcher: Watcher) -> Result:
    """Run a checked experiment; a finished one in ``folder`` is only read back when resumed."""
    if folder is None:
        return _run(config, None, manner, watcher)
    with folder.held(config.stored(), resume=manner.resume, overwrite=manner.overwrite):
        return _run(config, folder, manner, watcher)


def _run(config: Experiment, folder: RunFolder | None, manner: Manner, watcher: Watcher) -> Result:
    begun = folder is not None and folder.exists() and manner.resume
    bench = Bench.of(config, manner, folder.config().get("ran_by") if folder is not None and begun else None)
    history, state = History(), bench.federation.begin()
    if folder is not None and begun:
        if _is_finished(folder):
            watcher.run_skipped(config)
            watcher = Watcher()
        state = last_state(folder, state)
        folder.rewind(state.round)
        history = folder.history()
        if state.round < config.rounds:
            keep_versions(folder, state.round + 1)
    elif folder is not None:
        ran_by = {**bench.engine.stored(), "versions": [versions(1)]}
        folder.begin({**config.stored(), "ran_by": ran_by}, bench.split)
    watcher.run_begun(config, None if folder is None else folder.path, bench.engine)
    saving = Saving(folder, state)
    stopped: RunStopped | None = None
    try:
        for outcome in bench.federation.rounds(state):
            history.rounds.append(outcome.record)
            history.clients.extend(outcome.clients)
            saving.keep(outcome)
            watcher.round_done(config, outcome.record)
    except RunStopped as stop:
        stop.history = history
        stopped = stop
    finally:
        saving.checkpoint()
    result = result_of(bench.federation, saving.state, history)
    summary = bench.summary(history, stopped=None if stopped is None else str(stopped))
    if folder is not None:
        finish(folder, result, summary)
    watcher.run_ended(config, summary)
    if stopped is not None:
        raise stopped
    return result


def _is_finished(folder: RunFolder) -> bool:
    ended = folder.summary()
    return ended is not None and ended["stopped"] is None


def finish(folder: RunFolder, result: Result, summary: dict[str, Any]) -> None:
    """Keep the model of the last round that was finished, and say how the run ended."""
    folder.save_model(_parameters(result.model))
    if result.output_model is not result.model:
        folder.save_model(_parameters(result.output_model), "output")
    folder.end(summary)


def load(path: str | Path) -> Result:
    """Read a run that has ended back from its folder: history and models."""
    folder = RunFolder(path)
    config = folder.config()
    blank = _build(config["model"], config["dataset"], config["seed"])
    model, output = (load_model(copy.deepcopy(blank), folder.model_path(name)) for name in ("model", "output"))
    return Result(folder.history(), model.eval(), output.eval())


@dataclass(frozen=True)
class Bench:
    """An experiment set up to be run."""

    config: Experiment
    split: Split
    notes: Sequence[str]
    federation: Federation
    engine: Choice

    @classmethod
    def of(cls, config: Experiment, manner: Manner, chosen: Mapping[str, Any] | None) -> Bench:
        data = load_dataset(config.dataset, manner.data_dir)
        partition = partition_of(data, config.partition, config.clients, config.seed)
        misfits = _misfits(config, partition)
        withheld = misfits.clients if misfits is not None and not misfits.behaviour.ever_trains else frozenset()
        parts, held_out = hold_out(partition.indices, config.validation, config.seed, without=withheld)
        if config.validation and not len(held_out):
            raise InvalidInput("No client has two samples, so that none can be held out; leave validation away.")
        federation, engine = assemble(
            config,
            build_method(config.method, config.parameters),
            _build(config.model, config.dataset, config.seed),
            _clients(data, parts, misfits),
            data.test,
            validation=data.train.subset(held_out) if len(held_out) else None,
            detector=build_detector(config.detector, config.parameters),
            misfits=misfits,
            workers=manner.workers,
            chosen=chosen,
        )
        counts = label_counts(data.train.y.numpy(), parts, data.info.classes)
        split = Split(parts, counts, partition.groups, sorted(misfits.clients) if misfits is not None else [])
        return cls(config, split, partition.notes, federation, engine)

    def summary(self, history: History, stopped: str | None = None) -> dict[str, Any]:
        run = {"method": self.federation.method.name, "dataset": self.config.dataset, "seed": self.config.seed}
        figures = summarize(history, self.config.target, self.split)
        notes = {
            "parameters": self.config.parameters,
            "partition_notes": list(self.notes),
            "engine": str(self.engine),
            "stopped": stopped,
        }
        return {**run, **notes, **figures}


def _misfits(config: Experiment, partition: Partition) -> Misfits | None:
    if config.freeloaders == 0 or config.behaviour is None:
        return None
    groups = partition.groups or ["all"] * config.clients
    chosen = choose_clients(config.freeloaders, groups, config.seed)
    return Misfits(frozenset(chosen), Behaviour.of(config.behaviour), config.seed)


def _clients(data: Data, parts: Sequence[Indices], misfits: Misfits | None) -> list[TensorSamples]:
    """What each client trains on: its own samples, with wrong labels if it flips them."""
    clients = [data.train.subset(own) for own in parts]
    if misfits is not None and misfits.behaviour.name == "label-flip":
        wrong = TensorSamples(data.train.x, data.info.classes - 1 - data.train.y, data.train.prepare)
        clients = [wrong.subset(parts[i]) if i in misfits.clients else own for i, own in enumerate(clients)]
    return clients


def _build(model: str, dataset: str, seed: int) -> nn.Module:
    info = dataset_info(dataset)
    return build_model(model, info.shape, info.classes, torch_seed(seed, "model"))


def _parameters(model: nn.Module) -> Arrays:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}
