"""Nodes that take shares of their steps end with the model of the simulator, and cannot state another number."""

from __future__ import annotations

import pytest
from nodes import Nodes, client_app, history_of, run, small_model, small_nodes, small_strategy
from test_equals_simulator import ROUNDS, assert_same_model, simulate, without_seconds

import fedtaco
from fedtaco import FedAvg, InvalidInput, Ruan
from fedtaco.flower import FedStrategy
from fedtaco.flower.wire import HEADER
from fedtaco.methods import METHODS
from fedtaco.testing.small_federation import LOCAL_LR, skewed_clients
from fedtaco.unequal_work import parse_local_work

ANEW, ONCE = "uniform:0.1,1.0,round", "uniform:0.1,1.0"
STEPS = 12


@pytest.mark.parametrize("method", [cls() for cls in METHODS.values()], ids=str)
def test_every_method_ends_with_the_same_bits_as_the_simulator(method):
    settings = {"local_work": ANEW, "local_steps": STEPS, "momentum": 0.5}
    strategy = small_strategy(method, **settings)
    result = run(strategy, small_nodes(), ROUNDS)
    simulation = simulate(method, **settings)
    assert_same_model(result, simulation)
    assert without_seconds(history_of(strategy).client_table()) == without_seconds(simulation.history.client_table())


def test_shares_are_those_of_the_epochs_of_each_node():
    samples = [(own.x[:size], own.y[:size]) for own, size in zip(skewed_clients(), (12, 5, 9, 1, 8), strict=True)]
    settings = {"batch_size": 2, "local_lr": LOCAL_LR, "local_epochs": 2, "server_lr": 0.4, "local_work": ONCE}
    strategy = FedStrategy("taco", small_model(), local_steps=12, fraction_evaluate=0, **settings)
    result = run(strategy, Nodes([client_app(small_model(), own) for own in samples]), ROUNDS)
    assert_same_model(
        result, fedtaco.train(small_model(), samples, method="taco", rounds=ROUNDS, engine="serial", **settings)
    )


@pytest.mark.parametrize("scheme", ["complete", "fixed", "scaled"])
def test_absent_nodes_count_in_the_weights_of_ruan(scheme):
    settings = {"local_work": ANEW, "local_steps": 2}
    result = run(small_strategy(Ruan(scheme=scheme), fraction_train=0.6, **settings), small_nodes(), ROUNDS)
    assert_same_model(result, simulate(Ruan(scheme=scheme), participation=0.6, **settings))


@pytest.mark.parametrize("method", ["taco", "scaffold", "ruan"])
def test_a_node_that_does_not_reply_counts_as_a_simulated_client_that_does_not_answer(method, monkeypatch):
    """The grid loses the replies of those clients that drop out in the simulation."""
    monkeypatch.setattr("fedtaco.flower.exchange.PAUSE", 0.0)
    simulation = simulate(method, client_dropout=0.4, seed=1)
    dropped = [record.dropped for record in simulation.history]
    assert 0 < sum(map(len, dropped)) < 5 * ROUNDS
    nodes, strategy = small_nodes(), small_strategy(method, seed=1)

    def lose(node, reply):
        client = strategy.node_clients.nodes.client_of(node)
        return [] if client in dropped[strategy.recorder.state.round] else [reply]

    nodes.tamper = lose
    result = run(strategy, nodes, ROUNDS, timeout=0.01)
    assert [list(record.dropped) for record in history_of(strategy)] == [list(own) for own in dropped]
    assert_same_model(result, simulation)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_reply_with_another_number_of_steps_is_dropped(change):
    nodes, strategy = small_nodes(), small_strategy("fedavg", local_work=ONCE, local_steps=STEPS)

    def lie(node, reply):
        if node == nodes.nodes[2]:
            reply.content[HEADER]["steps"] += change
        return [reply]

    nodes.tamper = lie
    run(strategy, nodes, 2)
    steps = round(parse_local_work(ONCE).share(0, 2, 1) * STEPS)
    assert 1 < steps < STEPS
    expected = {2: f"it states {steps + change} steps instead of a whole number at least {steps} and at most {steps}"}
    assert [record.dropped for record in history_of(strategy)] == [expected] * 2


@pytest.mark.parametrize("name", ["client_dropout", "deadline"])
def test_simulated_failures_are_refused(name):
    with pytest.raises(
        InvalidInput, match=rf"^{name} is for simulated clients; real nodes fail by themselves: omit it"
    ):
        small_strategy("taco", **{name: 0.5})


def test_weights_by_samples_are_refused_if_those_of_absent_nodes_matter():
    with pytest.raises(InvalidInput, match=r"^weighted_by_key is set, but ruan needs the weights of all nodes"):
        small_strategy("ruan", weighted_by_key="num-examples")
    small_strategy("fednova", weighted_by_key="num-examples")


class EqualSteps(FedAvg):
    name = "equal-steps"
    unequal_steps = None


@pytest.mark.parametrize("settings", [{"local_epochs": 1}, {"local_work": ANEW}], ids=str)
def test_a_method_that_needs_equal_steps_is_refused(settings):
    with pytest.raises(InvalidInput, match=r"^equal-steps requires all clients to take equally many steps"):
        small_strategy(EqualSteps(), **settings)
    small_strategy(EqualSteps())


def test_invalid_local_work_is_refused():
    with pytest.raises(InvalidInput, match=r"^local_work is 'half'; it must be full, uniform"):
        small_strategy("taco", local_work="half")
