"""Runs with personal layers: engines, unused uploads, expelled clients, evaluation, and what the layers achieve."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

import numpy as np
import pytest
import torch
from personal_models import batch_norm_model
from torch import nn

import fedtaco
from fedtaco import FedAvg, Scaffold
from fedtaco.engines import PoolEngine, SerialEngine
from fedtaco.methods import METHODS
from fedtaco.models import FlatModel
from fedtaco.records import Decision
from fedtaco.testing import small_federation
from fedtaco.testing.small_federation import skewed_clients
from fedtaco.trust import AdversarialClients, Detector, NormDetector, Verdict, parse_behaviour


def make_federation(method, engine=SerialEngine, test=None, personal=("bn.*",), **options):
    model = FlatModel(batch_norm_model(), personal=personal)
    return small_federation.make_federation(method, model=model, engine=engine, test=test, **options)


def run_all(federation):
    return [finished.state for finished in federation.rounds(federation.initial)]


def pool(runner):
    return PoolEngine(runner, 2)


@pytest.mark.parametrize("method", [cls() for cls in METHODS.values()], ids=lambda method: method.name)
def test_pool_equals_serial_to_the_last_bit(method):
    options = {"participation": 1.0 if method.needs_all_clients else 0.6, "steps": [1, 5, 2, 4, 3]}
    serial, pooled = (run_all(make_federation(method, engine, **options))[-1] for engine in (SerialEngine, pool))
    assert torch.equal(serial.server.weights, pooled.server.weights)
    assert serial.memories.keys() == pooled.memories.keys()
    for client, memory in serial.memories.items():
        assert memory.keys() >= {"personal/weights", "personal/buffers"}
        for name, tensor in memory.items():
            assert torch.equal(tensor, pooled.memories[client][name]), (client, name)


def test_engines_that_stack_clients_give_way():
    clients = [(own.x.float(), own.y) for own in skewed_clients()]
    settings = {"method": "taco", "rounds": 2, "local_steps": 2, "local_lr": 0.1, "personal": "2.*"}
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    models = [
        fedtaco.train(model, clients, engine=engine, **settings).model for engine in ("auto", "batched", "serial")
    ]
    assert torch.equal(models[0][0].weight, models[1][0].weight)
    assert torch.equal(models[0][0].weight, models[2][0].weight)


def test_a_client_that_takes_no_part_keeps_its_layers():
    states = run_all(make_federation(FedAvg(), participation=0.4))
    for before, after in pairwise(states):
        kept = [client for client in before.memories if after.memories[client] is before.memories[client]]
        assert len(kept) >= len(before.memories) - 2
    assert all(memory.keys() == {"personal/weights", "personal/buffers"} for memory in states[-1].memories.values())


class ClientTwoSendsTooMuch(SerialEngine):
    """Multiplies the update of client 2 by a large number, in all rounds but the first two."""

    def run_client(self, method, instructions, job):
        result = super().run_client(method, instructions, job)
        if job.client == 2 and instructions.round > 2:
            result.upload["update"].mul_(1e6)
        return result


@pytest.mark.parametrize(("rule", "action", "changes"), [("drop", "dropped", False), ("clip", "clipped", True)])
@pytest.mark.parametrize("method", [FedAvg(), Scaffold()], ids=str)
def test_layers_of_an_upload_that_is_not_used_are_forgotten(method, rule, action, changes):
    federation = make_federation(method, ClientTwoSendsTooMuch, detector=NormDetector(long_uploads=rule))
    finished = list(federation.rounds(federation.initial))
    assert [one.action for one in finished[2].record.decisions] == [action]
    before, after = finished[1].state.memories[2], finished[2].state.memories[2]
    assert before.keys() == after.keys()
    assert torch.equal(before["personal/weights"], after["personal/weights"]) != changes
    assert torch.equal(before["personal/buffers"], after["personal/buffers"]) != changes


class ExpelsClientTwo(Detector):
    name, summary = "expels-two", "expels client 2 after the second round"

    def judge(self, memory, given):
        expelled = [2] if given.round == 2 else []
        decisions = [Decision(client, "expelled", "any", 1.0, 0.0, "no reason") for client in expelled]
        count = len(given.uploads.clients)
        return Verdict(memory, torch.zeros(count, dtype=torch.bool), decisions, [{}] * count, expelled)


@pytest.mark.parametrize("method", [FedAvg(), Scaffold()], ids=str)
def test_an_expelled_client_is_no_longer_evaluated(method):
    test = skewed_clients()[0]
    federation = make_federation(method, test=test, detector=ExpelsClientTwo())
    finished = list(federation.rounds(federation.initial))
    for number, one in enumerate(finished, 1):
        members = [client for client in range(5) if number < 2 or client != 2]
        assert one.record.accuracy == pytest.approx(mean_accuracy(federation, one.state, members, test), abs=1e-12)
    assert finished[-1].state.memories[2] is finished[1].state.memories[2]


def mean_accuracy(federation, state, clients, test):
    """Return the mean accuracy of the clients' own models, built by hand."""
    accuracies = []
    for client in clients:
        module = federation.model.to_module(state.server.weights, state.buffers)
        state_dict = {**module.state_dict(), **federation.model.personal_state(state.memories[client])}
        module.load_state_dict(state_dict)
        accuracies.append(float((module(test.x.float()).argmax(1) == test.y).double().mean()))
    return np.mean(accuracies)


def test_freeloaders_keep_their_initial_layers_and_do_not_count():
    adversaries = AdversarialClients(frozenset({1}), parse_behaviour("zero"), 0)
    test = skewed_clients()[0]
    federation = make_federation(FedAvg(), test=test, adversaries=adversaries)
    finished = list(federation.rounds(federation.initial))[-1]
    for name, initial in federation.model.initial_personal.items():
        assert torch.equal(finished.state.memories[1][name], initial)
    honest = [0, 2, 3, 4]
    assert finished.record.accuracy == pytest.approx(mean_accuracy(federation, finished.state, honest, test), abs=1e-12)


# What it is good for

PERMUTATIONS = ([0, 1, 2, 3], [1, 2, 3, 0], [3, 0, 1, 2], [2, 3, 0, 1])


def permuted_clients(count):
    """Return samples of four clients that name the same four clusters differently."""
    generator = torch.Generator().manual_seed(4)
    centres = 1.5 * torch.randn(4, 10, generator=torch.Generator().manual_seed(5))
    clients = []
    for permutation in PERMUTATIONS:
        y = torch.randint(0, 4, (count,), generator=generator)
        clients.append((centres[y] + torch.randn(count, 10, generator=generator), torch.tensor(permutation)[y]))
    return clients


@pytest.mark.parametrize("method", ["fedavg", "taco"])
def test_a_personal_head_serves_clients_that_name_classes_differently(method):
    torch.manual_seed(0)
    model = nn.Sequential(OrderedDict(body=nn.Linear(10, 16), relu=nn.ReLU(), head=nn.Linear(16, 4)))
    tests = permuted_clients(200)
    settings = {"method": method, "rounds": 10, "local_steps": 10, "local_lr": 0.1, "client_tests": tests}
    shared, personal = (
        fedtaco.train(model, permuted_clients(100), personal=names, **settings) for names in (None, ["head.*"])
    )
    before, after = ([one.accuracy for one in result.client_evaluations] for result in (shared, personal))
    assert np.mean(before) < 0.5
    assert min(after) > 0.9
    assert personal.history.final_accuracy == pytest.approx(np.mean(after))
    for client, (x, y) in enumerate(tests):
        own = personal.client_model(client)
        assert float((own(x).argmax(1) == y).double().mean()) == pytest.approx(after[client])


def test_own_models_are_not_said_to_predict_one_class():
    settings = {"dataset": "digits", "rounds": 3, "local_steps": 5, "clients": 8, "personal": "head.*"}
    assert not fedtaco.run("taco", **settings).summary["predicts_one_class"]


def test_fine_tuning_starts_from_the_personal_layers_of_each_client():
    model, tests = nn.Sequential(OrderedDict(body=nn.Linear(10, 16), head=nn.Linear(16, 4))), permuted_clients(50)
    settings = {"rounds": 3, "local_steps": 5, "local_lr": 0.05, "personal": "head.*", "client_tests": tests}
    results = [
        fedtaco.train(
            model, permuted_clients(40), method="taco", fine_tune_steps=1, engine=engine, workers=workers, **settings
        )
        for engine, workers in (("serial", None), ("pool", 2))
    ]
    assert results[0].client_evaluations == results[1].client_evaluations
    for one in results[0].client_evaluations:
        assert one.tuned_loss < one.loss
        assert one.loss < 1.2  # an untrained head has a loss of about 1.4
