"""Set up the simulation of a run: data, partition, model, engine and federation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from fedtaco.client import ClientConfig, ClientRunner
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
from fedtaco.errors import InvalidInput, RunStopped, StopTraining
from fedtaco.evaluation import Evaluator, check_metrics, count_classes, draw_samples
from fedtaco.federation import Federation
from fedtaco.models import FlatModel, build_model
from fedtaco.parameters import split_names
from fedtaco.processes import cores
from fedtaco.randomness import torch_seed
from fedtaco.records import ClientEvaluation, PartitionRecord
from fedtaco.run_state import RunState
from fedtaco.runs.options import RunOptions
from fedtaco.sample_checks import check_samples, check_weights
from fedtaco.settings.combinations import check_samples_per_round
from fedtaco.settings.run_spec import RunSpec
from fedtaco.simulated_clients import SimulatedClients, SimulationData
from fedtaco.trust import NO_ADVERSARIES, AdversarialClients, Behaviour, choose_clients, parse_behaviour


@dataclass(frozen=True)
class Simulation:
    """A federation of simulated clients, which is ready to run."""

    federation: Federation
    clients: SimulatedClients
    engine: EngineChoice

    @classmethod
    def build(
        cls,
        spec: RunSpec,
        model: nn.Module,
        clients: Sequence[Samples],
        data: SimulationData | None = None,
        options: RunOptions | None = None,
        previous: Mapping[str, Any] | None = None,
    ) -> Simulation:
        """Build the federation of a run.

        Parameters
        ----------
        spec
            What to run.
        model
            The module to train; it is copied.
        clients
            Samples that each client trains on.
        data
            Samples to evaluate on, and what clients do.
        options
            How to run it.
        previous
            What the run folder recorded about the engine, if the run is resumed; the same engine is used again.

        Raises
        ------
        InvalidInput
            If model and loss do not work on the samples, or a setting is not valid.
        """
        settings, data, options = spec.settings, data or SimulationData(), options or RunOptions()
        loss, seed = spec.task.loss, settings["seed"]
        flat = FlatModel(model, choose_device(settings["device"]), split_names(settings["personal"] or ""))
        check_weights(flat.module)
        check_samples(flat, _by_owner(clients, data), loss)
        check_metrics(spec.task.metrics)
        steps = data.steps or _steps_per_client(settings, clients)
        spec.work.require_answers(seed, steps, max(steps))
        runner = ClientRunner(
            flat,
            dict(enumerate(clients)),
            ClientConfig(spec.constants(len(clients), max(steps)), settings["batch_size"], loss, seed),
        )
        first_steps = list(spec.work.steps(seed, 1, dict(enumerate(steps))).values())
        workload = Workload(runner, first_steps, spec.cohort_size(len(clients)), cores())
        engine = select_engine(settings["engine"], workload, workers=options.workers, previous=previous)
        workers = engine.workers if settings["engine"] != "auto" else options.workers or cores()
        evaluator = Evaluator(flat, loss, seed, workers if workload.on_cpu else 1)
        if data.test is not None:
            data = replace(data, test=draw_samples(data.test, settings["eval_samples"], seed))
        simulated = SimulatedClients(spec, runner, engine.build(runner), evaluator, replace(data, steps=steps))
        return cls(simulated.federation(), simulated, engine)


@dataclass(frozen=True)
class PreparedSimulation(Simulation):
    """A simulation on the data that a run's settings name."""

    partition: PartitionRecord
    test_samples: int
    """Number of samples in the test set, of which ``eval_samples`` are evaluated."""
    notes: Sequence[str]
    """Remarks on the partition and on what the detector can find, for the user."""

    @classmethod
    @deterministic_torch()
    def prepare(
        cls, spec: RunSpec, options: RunOptions, previous: Mapping[str, Any] | None = None
    ) -> PreparedSimulation:
        """Load and partition the data, and build the federation; see :meth:`Simulation.build`."""
        settings, task = spec.settings, spec.task
        seed, holds_out = settings["seed"], settings["validation"]
        dataset = load_dataset(settings["dataset"], options.data_dir) if task.dataset is None else task.dataset
        partition = partition_dataset(dataset, settings["partition"], settings["clients"], seed)
        adversaries = _adversaries(settings, partition)
        parts, held_out = hold_out(partition.indices, holds_out, seed, exclude=adversaries.never_training)
        train = add_noise(dataset.train, partition, seed)
        validation = train.subset(np.concatenate(held_out))
        if holds_out and not len(validation):
            raise InvalidInput("No client has two samples, so none can be held out; omit validation.")
        clients = [train.subset(part) for part in parts]
        for client in adversaries.clients:
            clients[client] = _change_samples(adversaries.behaviour, clients[client], dataset.info.classes)
        own_tests = {
            client: train.subset(part)
            for client, part in enumerate(held_out)
            if len(part) and client not in adversaries.clients
        }
        data = SimulationData(
            test=dataset.test,
            validation=validation if len(validation) else None,
            client_tests=task.client_tests or own_tests,
            steps=task.steps,
            adversaries=adversaries,
        )
        built = Simulation.build(spec, build_initial_model(spec), clients, data, options, previous)
        unknown = PartitionRecord.unknown(len(parts)).label_counts
        counts = unknown if dataset.labels is None else label_counts(dataset.labels, parts, dataset.info.classes)
        record = PartitionRecord(parts, counts, partition.groups, sorted(adversaries.clients))
        note = spec.detector.note(spec.codec)
        notes = [*partition.notes, *([] if note is None else [note])]
        return cls(
            **vars(built), partition=record, test_samples=0 if dataset.test is None else len(dataset.test), notes=notes
        )

    def final_figures(self, state: RunState, ending: RunStopped | StopTraining | None) -> dict[str, Any]:
        """Return the final evaluations, and what the summary says of the data."""
        clients, test = self.clients, self.clients.data.test
        evaluations: list[ClientEvaluation] = []
        if clients.data.client_tests and not isinstance(ending, RunStopped):
            self.federation.on_evaluation(state.round)
            evaluations = clients.evaluate_clients(state)
        if state.averaged is not None:
            self.federation.on_evaluation(state.round)
        return {
            "evaluations": evaluations,
            "average_accuracy": clients.evaluate_average(state),
            "output_accuracy": clients.evaluate_output(state) if isinstance(ending, StopTraining) else None,
            "test_counts": [] if test is None else count_classes(test),
            "samples": None if test is None else (len(test), self.test_samples),
            "partition_notes": list(self.notes),
        }


def _by_owner(clients: Sequence[Samples], data: SimulationData) -> dict[str, Samples]:
    owners = {f"client {number}": samples for number, samples in enumerate(clients)}
    owners |= {f"the test set of client {client}": own for client, own in data.client_tests.items()}
    return owners if data.test is None else {**owners, "the test set": data.test}


def _steps_per_client(settings: Mapping[str, Any], clients: Sequence[Samples]) -> list[int]:
    epochs, sizes = settings["local_epochs"], [len(samples) for samples in clients]
    if epochs is None:
        return [settings["local_steps"]] * len(clients)
    check_samples_per_round(epochs * max(sizes), "local_epochs times the number of samples of the largest client")
    return [steps_for_epochs(epochs, size, settings["batch_size"]) for size in sizes]


def build_initial_model(spec: RunSpec) -> nn.Module:
    """Return the model of a run with its initial weights.

    Raises
    ------
    InvalidInput
        If the own model is not valid, or a named one cannot be built for the dataset.
    """
    task, settings = spec.task, spec.settings
    if task.model is not None:
        return task.build_model(settings["seed"])
    info = dataset_info(settings["dataset"]) if task.dataset is None else task.dataset.info
    return build_named_model(settings, info.shape, info.classes)


def build_named_model(settings: Mapping[str, Any], shape: Sequence[int], classes: int) -> nn.Module:
    """Return a model by name with its initial weights; raise InvalidInput if there are no classes."""
    if classes == 0:
        raise InvalidInput(f"The model {settings['model']} needs targets that are class labels; give your own model.")
    return build_model(settings["model"], tuple(shape), classes, torch_seed(settings["seed"], "model"))


def _adversaries(settings: Mapping[str, Any], partition: Partition) -> AdversarialClients:
    if settings["behaviour"] is None:
        return NO_ADVERSARIES
    groups = partition.groups or ["all"] * settings["clients"]
    chosen = choose_clients(settings["freeloaders"], groups, settings["seed"])
    return AdversarialClients(frozenset(chosen), parse_behaviour(settings["behaviour"]), settings["seed"])


def _change_samples(behaviour: Behaviour, samples: Samples, classes: int) -> Samples:
    """Return the samples that a misbehaving client trains on."""
    if type(behaviour).change_samples is Behaviour.change_samples:
        return samples
    if not isinstance(samples, TensorSamples) or not classes:
        raise InvalidInput(f"The behaviour {behaviour.name} needs samples in memory with class labels; choose another.")
    return behaviour.change_samples(samples, classes)
