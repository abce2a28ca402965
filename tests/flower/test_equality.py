"""For every method, a run on Flower ends where the simulator's does."""

from __future__ import annotations

import pytest
import torch
from nodes import Nodes, arrays, client_app, run, small_model, small_nodes, small_strategy
from sketches import SKETCHES
from torch import nn
from torch.nn.functional import cross_entropy

import fedtaco
from fedtaco.federation import Federation
from fedtaco.flower import FedStrategy
from fedtaco.local import Plan, Worker
from fedtaco.methods import METHODS, Setting
from fedtaco.models import FlatModel
from fedtaco.testing.small import LOCAL_LR, STEPS, skewed_clients
from fedtaco.trust import PaperDetector

ROUNDS = 5


def simulated(method, **options):
    samples = [(own.x, own.y) for own in skewed_clients()]
    given = {"rounds": ROUNDS, "local_steps": STEPS, "batch_size": 4, "local_lr": LOCAL_LR, "engine": "serial"}
    return fedtaco.train(small_model(), samples, method=method, **{**given, **options})


def assert_same_model(result, simulation):
    ended = result.arrays.to_torch_state_dict()
    for name, tensor in simulation.model.state_dict().items():
        assert torch.equal(ended[name], tensor), name


def untimed(records):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in records]


@pytest.mark.parametrize("method", [*(kind() for kind in METHODS.values()), *SKETCHES], ids=str)
def test_every_method_ends_with_the_simulators_bits(method):
    strategy = small_strategy(method)
    result = run(strategy, small_nodes(), ROUNDS)
    simulation = simulated(method)
    assert_same_model(result, simulation)
    history = strategy._run.recording.history
    assert untimed(history.client_table()) == untimed(simulation.history.client_table())
    assert not torch.equal(result.arrays.to_torch_state_dict()["weight"], small_model().weight)


@pytest.mark.parametrize("method", ["scaffold-taco", "taco"])
def test_part_of_the_nodes_by_samples_with_a_detector(method):
    result = run(
        small_strategy(method, fraction_train=0.6, weighted_by_key="num-examples", detector="paper", server_lr=0.2),
        small_nodes(),
        ROUNDS,
    )
    assert_same_model(
        result,
        simulated(method, participation=0.6, weighting="samples", detector="paper", server_lr=0.2),
    )


def test_a_model_with_buffers_and_dropout():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.ReLU(), nn.Linear(6, 3))
    samples = [(own.x.float(), own.y) for own in skewed_clients()]
    strategy = FedStrategy("taco", model, local_steps=3, batch_size=4, local_lr=0.1, fraction_evaluate=0)
    nodes = Nodes([client_app(model, own) for own in samples])
    result = strategy.start(nodes, arrays(model), num_rounds=ROUNDS, timeout=1)
    simulation = fedtaco.train(
        model, samples, method="taco", rounds=ROUNDS, local_steps=3, batch_size=4, local_lr=0.1, engine="serial"
    )
    assert_same_model(result, simulation)
    assert not torch.equal(result.arrays.to_torch_state_dict()["1.running_mean"], model[1].running_mean)


def federation_with(method, detector):
    """The simulator with a detector that has parameters."""
    clients = skewed_clients()
    setting = Setting(len(clients), ROUNDS, STEPS, LOCAL_LR)
    worker = Worker(FlatModel(small_model()), clients, Plan(setting, 4, cross_entropy, 0))
    return Federation(METHODS[method](), worker, None, detector=detector)


@pytest.mark.parametrize("method", ["taco", "scaffold", "scaffold-taco", "fedavg"])
def test_expulsions_change_the_same_on_both_sides(method):
    """Scaffold's c loses the c_i of who leaves, which the server on Flower tells from uploads."""
    probe = small_strategy(method)
    run(probe, small_nodes(), 2)
    alphas = [record.alpha for record in probe._run.recording.history.clients if record.round == 2]
    detector = PaperDetector(kappa=max(alphas), max_strikes=1)
    strategy, nodes = small_strategy(method, detector=detector), small_nodes()
    run(strategy, nodes, ROUNDS)
    federation = federation_with(method, detector)
    outcomes = list(federation.rounds(federation.begin()))
    expelled = [outcome.state.trust["expelled"].tolist() for outcome in outcomes]
    assert 0 < sum(expelled[-2]) < 5
    assert strategy._run.state.trust["expelled"].tolist() == expelled[-1]
    for name, tensor in outcomes[-1].state.server.memory.items():
        ours = strategy._run.state.server.memory[name]
        assert torch.allclose(ours, tensor, rtol=0, atol=1e-12, equal_nan=True), name
    assert torch.allclose(strategy._run.state.server.weights, outcomes[-1].state.server.weights, rtol=0, atol=1e-12)
    history = strategy._run.recording.history
    assert [record.decisions for record in history] == [outcome.record.decisions for outcome in outcomes]
