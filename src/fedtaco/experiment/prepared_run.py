"""Set up everything that a run needs from its configuration: data, partition, model, engine and simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco.client import ClientConfig, ClientRunner
from fedtaco.codecs import parse_codec
from fedtaco.data import (
    Partition,
    Samples,
    TensorSamples,
    add_noise,
    dataset_info,
    hold_out,
    label_counts,
    load_dataset,
    partition_dataset,
    steps_for_epochs,
)
from fedtaco.device import choose_device, deterministic_torch
from fedtaco.engines import EngineChoice, Workload, select_engine
from fedtaco.errors import InvalidInput
from fedtaco.evaluation import Evaluator, OwnMetrics, check_metrics, draw_samples
from fedtaco.experiment.config import create_method_and_detector
from fedtaco.experiment.own_task import NOTHING_OWN, OwnTask
from fedtaco.methods import Method
from fedtaco.models import FlatModel, Loss, build_model
from fedtaco.parameters import split_names
from fedtaco.processes import cores
from fedtaco.randomness import torch_seed
from fedtaco.records import PartitionRecord
from fedtaco.runs.combinations import check_samples_per_round
from fedtaco.runs.constants import make_client_work, make_constants
from fedtaco.runs.options import RunOptions
from fedtaco.runs.settings import ExperimentConfig
from fedtaco.sample_checks import check_samples, check_weights
from fedtaco.server import cohort_size
from fedtaco.simulator import Simulator
from fedtaco.trust import NO_ADVERSARIES, AdversarialClients, Behaviour, Detector, choose_clients, parse_behaviour


@dataclass(frozen=True)
class PreparedRun:
    """A run that is ready to start."""

    partition: PartitionRecord
    test_samples: int
    """Number of samples in the test set, of which ``eval_samples`` are evaluated."""
    notes: Sequence[str]
    """Remarks on the partition and on what the detector can find, for the user."""
    simulator: Simulator
    engine: EngineChoice

    @classmethod
    @deterministic_torch()
    def prepare(
        cls,
        config: ExperimentConfig,
        options: RunOptions,
        own: OwnTask = NOTHING_OWN,
        previous: Mapping[str, Any] | None = None,
    ) -> PreparedRun:
        """Load the data, partition them, and build the simulator.

        Parameters
        ----------
        config, options
            What to run, and how.
        own
            The user's own data, model and loss, if there are any.
        previous
            What the run folder recorded about the engine, if the run is resumed; the same engine is used again.
        """
        seed = config["seed"]
        data = load_dataset(config["dataset"], options.data_dir) if own.dataset is None else own.dataset
        partition = partition_dataset(data, config["partition"], config["clients"], seed)
        adversaries = _adversaries(config, partition)
        parts, held_out = hold_out(partition.indices, config["validation"], seed, exclude=adversaries.never_training)
        train = add_noise(data.train, partition, seed)
        validation = train.subset(np.concatenate(held_out))
        if config["validation"] and not len(validation):
            raise InvalidInput("No client has two samples, so none can be held out; omit validation.")
        clients = [train.subset(part) for part in parts]
        for client in adversaries.clients:
            clients[client] = _change_samples(adversaries.behaviour, clients[client], data.info.classes)
        method, detector = create_method_and_detector(config)
        simulator, engine = prepare_simulator(
            config,
            method,
            detector,
            build_initial_model(config, own),
            clients,
            data.test,
            validation=validation if len(validation) else None,
            client_tests=own.client_tests
            or {
                client: train.subset(part)
                for client, part in enumerate(held_out)
                if len(part) and client not in adversaries.clients
            },
            metrics=own.metrics,
            loss=own.loss,
            steps=own.steps,
            adversaries=adversaries,
            workers=options.workers,
            previous=previous,
        )
        unknown = PartitionRecord.unknown(len(parts)).label_counts
        counts = unknown if data.labels is None else label_counts(data.labels, parts, data.info.classes)
        record = PartitionRecord(parts, counts, partition.groups, sorted(adversaries.clients))
        note = detector.note(simulator.server.codec)
        notes = [*partition.notes, *([] if note is None else [note])]
        return cls(record, 0 if data.test is None else len(data.test), notes, simulator, engine)


def prepare_simulator(
    config: Mapping[str, Any],
    method: Method,
    detector: Detector,
    model: nn.Module,
    clients: Sequence[Samples],
    test: Samples | None,
    *,
    validation: Samples | None = None,
    client_tests: Mapping[int, Samples] | None = None,
    metrics: OwnMetrics | None = None,
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
    client_tests
        Samples to evaluate the final model on for each client, by client.
    metrics
        Own metrics.
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
    check_weights(flat.module)
    owners = {f"client {number}": samples for number, samples in enumerate(clients)}
    owners |= {f"the test set of client {client}": own for client, own in (client_tests or {}).items()}
    check_samples(flat, owners if test is None else {**owners, "the test set": test}, loss)
    steps, work, seed = steps or _steps_per_client(config, clients), make_client_work(config), config["seed"]
    work.require_answers(seed, steps, max(steps))
    constants = make_constants(config, clients=len(clients), rounds=config["rounds"], local_steps=max(steps))
    runner = ClientRunner(flat, clients, ClientConfig(constants, config["batch_size"], loss, seed))
    first_steps = list(work.steps(seed, 1, dict(enumerate(steps))).values())
    workload = Workload(runner, first_steps, cohort_size(config["participation"], len(clients)), cores())
    engine = select_engine(config["engine"], workload, workers=workers, previous=previous)
    check_metrics(metrics or {})
    workers = engine.workers if config["engine"] != "auto" else workers or cores()
    simulator = Simulator(
        method,
        runner,
        None if test is None else draw_samples(test, config["eval_samples"], seed),
        validation=validation,
        evaluator=Evaluator(flat, loss, seed, workers if workload.on_cpu else 1),
        metrics=metrics,
        eval_every=config["eval_every"],
        average_last=config["average_last"],
        client_tests=client_tests,
        fine_tune_steps=config["fine_tune_steps"],
        steps=steps,
        work=work,
        participation=config["participation"],
        weighting=config["weighting"],
        detector=detector,
        codec=parse_codec(config["compress"]),
        adversaries=adversaries,
        engine=engine.build(runner),
        diagnose=config["diagnose"],
    )
    return simulator, engine


def _steps_per_client(config: Mapping[str, Any], clients: Sequence[Samples]) -> list[int]:
    epochs, sizes = config["local_epochs"], [len(samples) for samples in clients]
    if epochs is None:
        return [config["local_steps"]] * len(clients)
    check_samples_per_round(epochs * max(sizes), "local_epochs times the number of samples of the largest client")
    return [steps_for_epochs(epochs, size, config["batch_size"]) for size in sizes]


def build_initial_model(config: Mapping[str, Any], own: OwnTask) -> nn.Module:
    """Return the model of a run with its initial weights.

    Raises
    ------
    InvalidInput
        If the own model is not valid, or a named one cannot be built for the dataset.
    """
    if own.model is not None:
        return own.build_model(config["seed"])
    info = dataset_info(config["dataset"]) if own.dataset is None else own.dataset.info
    return build_named_model(config, info.shape, info.classes)


def build_named_model(config: Mapping[str, Any], shape: Sequence[int], classes: int) -> nn.Module:
    """Return a model by name with its initial weights; raise InvalidInput if there are no classes."""
    if classes == 0:
        raise InvalidInput(f"The model {config['model']} needs targets that are class labels; give your own model.")
    return build_model(config["model"], tuple(shape), classes, torch_seed(config["seed"], "model"))


def _adversaries(config: ExperimentConfig, partition: Partition) -> AdversarialClients:
    if config["behaviour"] is None:
        return NO_ADVERSARIES
    groups = partition.groups or ["all"] * config["clients"]
    chosen = choose_clients(config["freeloaders"], groups, config["seed"])
    return AdversarialClients(frozenset(chosen), parse_behaviour(config["behaviour"]), config["seed"])


def _change_samples(behaviour: Behaviour, samples: Samples, classes: int) -> Samples:
    """Return the samples that a misbehaving client trains on."""
    if type(behaviour).change_samples is Behaviour.change_samples:
        return samples
    if not isinstance(samples, TensorSamples) or not classes:
        raise InvalidInput(f"The behaviour {behaviour.name} needs samples in memory with class labels; choose another.")
    return behaviour.change_samples(samples, classes)
