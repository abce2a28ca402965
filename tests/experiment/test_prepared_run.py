"""The data of a run: samples that are held out, and samples of misbehaving clients."""

from __future__ import annotations

import pytest
import torch

import fedtaco
from fedtaco import InvalidInput
from fedtaco.experiment import RunOptions, build_spec
from fedtaco.experiment.prepared_run import PreparedSimulation
from fedtaco.records import RunFolder

QUICK = {"dataset": "digits", "clients": 6, "rounds": 3, "local_steps": 4, "batch_size": 16}
FREELOADERS = {"dataset": "digits", "clients": 8, "rounds": 6, "local_steps": 4, "freeloaders": 3}


def prepare(**settings):
    return PreparedSimulation.prepare(build_spec(method="fedavg", **settings), RunOptions())


def test_validation_samples_are_in_no_clients_training_data(tmp_path):
    result = fedtaco.run("fedavg", out=tmp_path / "run", **{**QUICK, "validation": 0.25})
    partition = RunFolder(tmp_path / "run").partition()
    assert sum(len(part) for part in partition.indices) == pytest.approx(0.75 * 1437, abs=6)
    assert all(0 <= record.validation_accuracy <= 1 for record in result.history)
    summary = RunFolder(tmp_path / "run").summary()
    best = max(result.history, key=lambda record: record.validation_accuracy)
    assert summary["chosen_validation_accuracy"] == best.validation_accuracy
    assert summary["chosen_accuracy"] == result.history[summary["chosen_round"] - 1].accuracy
    plain = fedtaco.run("fedavg", **QUICK)
    assert plain.history[0].validation_accuracy is None


def test_clients_with_too_few_samples_for_validation_are_reported():
    with pytest.raises(InvalidInput, match="No client has two samples"):
        fedtaco.run("fedavg", **{**QUICK, "clients": 1437, "partition": "iid", "validation": 0.1})


@pytest.mark.parametrize(("behaviour", "trains"), [("replay", False), ("replay:late", True), ("label-flip", True)])
def test_samples_of_clients_that_never_train_are_not_used(behaviour, trains):
    """Neither for training nor for validation; those of clients that train at times are."""
    weights = []
    for change_labels in (False, True):
        prepared = prepare(behaviour=behaviour, validation=0.2, **FREELOADERS)
        federation = prepared.federation
        clients = federation.clients.runner.clients
        if change_labels:
            for client in prepared.partition.freeloaders:
                samples = clients[client]
                clients[client] = type(samples)(samples.x, samples.y * 0, samples.prepare, samples.chosen)
        weights.append(list(federation.rounds(federation.initial))[-1].state.server.weights)
    assert torch.equal(*weights) is not trains
    honest_run = prepare(validation=0.2, clients=8)
    held_out, held_out_of_all = (len(run.clients.data.validation) for run in (prepared, honest_run))
    assert (held_out == held_out_of_all) is trains


def test_flipped_labels_are_mirrored():
    flipped, honest = prepare(clients=8, freeloaders=3, behaviour="label-flip"), prepare(clients=8)
    assert len(flipped.partition.freeloaders) == 3
    for client in range(8):
        labels, expected = (run.federation.clients.runner.clients[client].labels() for run in (flipped, honest))
        assert torch.equal(labels, 9 - expected if client in flipped.partition.freeloaders else expected)
