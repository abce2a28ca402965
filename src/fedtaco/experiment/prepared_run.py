"""Set up everything that a run needs from its configuration: data, partition, model, engine and simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco.client import ClientConfig, ClientRunner
from fedtaco.data import (
    Partition,
    Samples,
    add_noise,
    dataset_info,
    hold_out,
    label_counts,
    load_dataset,
    partition_dataset,
    steps_for_epochs,
)
from fedtaco.device import choose_device
from fedtaco.engines import EngineChoice, Workload, select_engine
from fedtaco.errors import InvalidInput
from fedtaco.experiment.config import create_method_and_detector
from fedtaco.methods import Method
from fedtaco.models import FlatModel, Loss, build_model
from fedtaco.parameters import split_names
from fedtaco.processes import cores
from fedtaco.randomness import torch_seed
from fedtaco.records import PartitionRecord
from fedtaco.runs.combinations import check_samples_per_round
from fedtaco.runs.constants import make_constants
from fedtaco.runs.settings import ExperimentConfig, RunOptions
from fedtaco.sample_checks import check_samples
from fedtaco.server import cohort_size
from fedtaco.simulator import Simulator
from fedtaco.trust import NO_ADVERSARIES, AdversarialClients, Detector, choose_clients, parse_behaviour


@dataclass(frozen=True)
class PreparedRun:
    """A run that is ready to start."""

    partition: PartitionRecord
    notes: Sequence[str]
    """Remarks on the partition, for the user."""
    simulator: Simulator
    engine: EngineChoice

    @classmethod
    def prepare(
        cls, config: ExperimentConfig, options: RunOptions, previous: Mapping[str, Any] | None = None
    ) -> PreparedRun:
        """Load the data, partition them, and build the simulator.

        Parameters
        ----------
        config, options
            What to run, and how.
        previous
            What the run folder recorded about the engine, if the run is resumed; the same engine is used again.
        """
        seed = config["seed"]
        data = load_dataset(config["dataset"], options.data_dir)
        partition = partition_dataset(data, config["partition"], config["clients"], seed)
        adversaries = _adversaries(config, partition)
        parts, held_out = hold_out(partition.indices, config["validation"], seed, exclude=adversaries.never_training)
        if config["validation"] and not len(held_out):
            raise InvalidInput("No client has two samples, so none can be held out; omit validation.")
        train = add_noise(data.train, partition, seed)
        clients = [train.subset(part) for part in parts]
        for client in adversaries.clients:
            clients[client] = adversaries.behaviour.change_samples(clients[client], data.info.classes)
        method, detector = create_method_and_detector(config)
        simulator, engine = prepare_simulator(
            config,
            method,
            detector,
            build_blank_model(config),
            clients,
            data.test,
            validation=train.subset(held_out) if len(held_out) else None,
            adversaries=adversaries,
            workers=options.workers,
            previous=previous,
        )
        counts = label_counts(data.train.y.numpy(), parts, data.info.classes)
        record = PartitionRecord(parts, counts, partition.groups, sorted(adversaries.clients))
        return cls(record, partition.notes, simulator, engine)


def prepare_simulator(
    config: Mapping[str, Any],
    method: Method,
    detector: Detector,
    model: nn.Module,
    clients: Sequence[Samples],
    test: Samples | None,
    *,
    validation: Samples | None = None,
    loss: Loss = cross_entropy,
    steps: Sequence[int] | None = None,
    adversaries: AdversarialClients = NO_ADVERSARIES,
    workers: int | None = None,
    previous: Mapping[str, Any] | None = None,
) -> tuple[Simulator, EngineChoice]:
    """Return a simulator that is ready to start, and the engine that was selected for it.

    Parameters
    ----------
    config
        At least the settings in :class:`~fedtaco.runs.settings.TrainSettings`, ``rounds`` and, unless ``local_epochs``
        is set, ``local_steps``.
    method, detector, adversaries
        What is run, what judges the uploads, and which clients misbehave.
    model
        The module to train; it is copied.
    clients, test, validation
        Samples of each client, and samples to evaluate on or ``None``.
    loss
        The mean loss of a batch, from predictions and targets.
    steps
        Local steps of each client; by default ``local_steps`` for all, or as many as ``local_epochs`` takes.
    workers
        Number of worker processes; chosen by the engine's rule by default.
    previous
        What the run folder recorded about the engine, if the run is resumed.

    Raises
    ------
    InvalidInput
        If model and loss do not work on the samples, or a setting is not valid.
    """
    flat = FlatModel(model, choose_device(config["device"]), split_names(config["personal"] or ""))
    owners = {f"client {number}": samples for number, samples in enumerate(clients)}
    check_samples(flat, owners if test is None else {**owners, "the test set": test}, loss)
    steps = steps or _steps_per_client(config, clients)
    constants = make_constants(config, clients=len(clients), rounds=config["rounds"], local_steps=max(steps))
    runner = ClientRunner(flat, clients, ClientConfig(constants, config["batch_size"], loss, config["seed"]))
    workload = Workload(runner, steps, cohort_size(config["participation"], len(clients)), cores())
    engine = select_engine(config["engine"], workload, workers=workers, previous=previous)
    simulator = Simulator(
        method,
        runner,
        test,
        validation=validation,
        steps=steps,
        participation=config["participation"],
        weighting=config["weighting"],
        detector=detector,
        adversaries=adversaries,
        engine=engine.build(runner),
    )
    return simulator, engine


def _steps_per_client(config: Mapping[str, Any], clients: Sequence[Samples]) -> list[int]:
    epochs, sizes = config["local_epochs"], [len(samples) for samples in clients]
    if epochs is None:
        return [config["local_steps"]] * len(clients)
    check_samples_per_round(epochs * max(sizes), "local_epochs times the number of samples of the largest client")
    return [steps_for_epochs(epochs, size, config["batch_size"]) for size in sizes]


def build_blank_model(config: Mapping[str, Any]) -> nn.Module:
    """Return the model of a configuration with its initial weights."""
    info = dataset_info(config["dataset"])
    return build_model(config["model"], info.shape, info.classes, torch_seed(config["seed"], "model"))


def _adversaries(config: ExperimentConfig, partition: Partition) -> AdversarialClients:
    if config["behaviour"] is None:
        return NO_ADVERSARIES
    groups = partition.groups or ["all"] * config["clients"]
    chosen = choose_clients(config["freeloaders"], groups, config["seed"])
    return AdversarialClients(frozenset(chosen), parse_behaviour(config["behaviour"]), config["seed"])
