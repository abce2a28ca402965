"""For every method, a run on Flower ends with the same model as the simulator."""

from __future__ import annotations

import pytest
import torch
from nodes import Nodes, arrays, client_app, history_of, run, small_model, small_nodes, small_strategy
from torch import nn

import fedtaco
from fedtaco.flower import FedStrategy
from fedtaco.methods import METHODS
from fedtaco.testing.small_federation import LOCAL_LR, STEPS, make_federation, skewed_clients
from fedtaco.trust import PaperDetector

ROUNDS = 5


def simulate(method, **options):
    samples = [(own.x, own.y) for own in skewed_clients()]
    given = {"rounds": ROUNDS, "local_steps": STEPS, "batch_size": 4, "local_lr": LOCAL_LR, "engine": "serial"}
    return fedtaco.train(small_model(), samples, method=method, **{**given, **options})


def assert_same_model(result, simulation):
    trained = result.arrays.to_torch_state_dict()
    for name, tensor in simulation.model.state_dict().items():
        assert torch.equal(trained[name], tensor), name


def without_seconds(records):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in records]


@pytest.mark.parametrize("method", [cls() for cls in METHODS.values()], ids=str)
def test_every_method_ends_with_the_same_bits_as_the_simulator(method):
    strategy = small_strategy(method)
    result = run(strategy, small_nodes(), ROUNDS)
    simulation = simulate(method)
    assert_same_model(result, simulation)
    expected = without_seconds(simulation.history.client_table())
    assert without_seconds(history_of(strategy).client_table()) == expected
    for column in ("gain", "warning"):
        assert history_of(strategy).column(column) == simulation.history.column(column)
    assert not torch.equal(result.arrays.to_torch_state_dict()["weight"], small_model().weight)


def test_only_the_first_warning_of_the_stability_monitor_is_logged(caplog):
    strategy = small_strategy("foolsgold")
    run(strategy, small_nodes(), ROUNDS)
    warnings = [record.warning for record in history_of(strategy) if record.warning is not None]
    logged = [record.getMessage() for record in caplog.records if "amplify a disagreement" in record.getMessage()]
    assert len(warnings) > 1
    assert len(logged) == 1
    assert warnings[0] in logged[0]


NESTEROV = {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "lr_schedule": "cosine"}
ADAMW = {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.5, "lr_schedule": "exponential:0.9"}


@pytest.mark.parametrize(
    ("method", "settings"),
    [*((name, NESTEROV) for name in METHODS), *((name, ADAMW) for name in ("fedavg", "scaffold", "taco", "feddyn"))],
    ids=lambda value: value if isinstance(value, str) else value.get("optimizer", "nesterov"),
)
def test_local_optimizers_and_schedules_end_with_the_same_bits_as_the_simulator(method, settings):
    result = run(small_strategy(method, **settings), small_nodes(), ROUNDS)
    simulation = simulate(method, **settings)
    assert_same_model(result, simulation)
    assert not torch.equal(simulation.model.weight, simulate(method).model.weight)


@pytest.mark.parametrize("method", ["scaffold", "taco", "fedcm"])
def test_local_epochs_of_nodes_with_different_numbers_of_samples(method):
    """The simulator knows that the largest client takes 6 steps; on Flower, ``local_steps`` says so."""
    samples = [(own.x[:size], own.y[:size]) for own, size in zip(skewed_clients(), (12, 5, 9, 1, 8), strict=True)]
    settings = {"batch_size": 4, "local_lr": LOCAL_LR, "local_epochs": 2, "momentum": 0.5, "server_lr": 0.4}
    strategy = FedStrategy(method, small_model(), local_steps=6, fraction_evaluate=0, **settings)
    result = run(strategy, Nodes([client_app(small_model(), own) for own in samples]), ROUNDS)
    simulation = fedtaco.train(small_model(), samples, method=method, rounds=ROUNDS, engine="serial", **settings)
    assert_same_model(result, simulation)
    same = [6, 3, 5, 1, 4]
    by_steps = {name: value for name, value in settings.items() if name != "local_epochs"}
    assert_same_model(
        result, fedtaco.train(small_model(), samples, method=method, rounds=ROUNDS, local_steps=same, **by_steps)
    )


@pytest.mark.parametrize("method", ["scaffold-taco", "taco"])
def test_partial_participation_weighted_by_samples_with_a_detector(method):
    result = run(
        small_strategy(method, fraction_train=0.6, weighted_by_key="num-examples", detector="paper", server_lr=0.2),
        small_nodes(),
        ROUNDS,
    )
    assert_same_model(
        result,
        simulate(method, participation=0.6, weighting="samples", detector="paper", server_lr=0.2),
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


@pytest.mark.parametrize("method", ["taco", "scaffold", "scaffold-taco", "scaffold-m", "feddyn", "feddc", "fedavg"])
def test_expulsions_have_the_same_effect_as_in_the_simulator(method):
    """Means over all clients lose the vectors of an expelled one, which the server on Flower derives from uploads."""
    probe = small_strategy(method)
    run(probe, small_nodes(), 2)
    alphas = [record.quantities["alpha"] for record in history_of(probe).clients if record.round == 2]
    detector = PaperDetector(kappa=max(alphas), max_strikes=1)
    strategy, nodes = small_strategy(method, detector=detector), small_nodes()
    run(strategy, nodes, ROUNDS)
    federation = make_federation(METHODS[method](), detector=detector, rounds=ROUNDS)
    finished = list(federation.rounds(federation.initial))
    expelled = [one.state.expelled.tolist() for one in finished]
    assert 0 < sum(expelled[-2]) < 5
    state, expected = strategy.recorder.state, finished[-1].state
    assert state.expelled.tolist() == expelled[-1]
    for name, tensor in expected.server.memory.items():
        ours = state.server.memory[name]
        assert torch.allclose(ours, tensor, rtol=0, atol=1e-12, equal_nan=True), name
    assert torch.allclose(state.server.weights, expected.server.weights, rtol=0, atol=1e-12)
    assert [record.decisions for record in history_of(strategy)] == [one.record.decisions for one in finished]
