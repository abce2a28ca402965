"""What methods change when clients are expelled: the means over all clients, and TACO's output z."""

from __future__ import annotations

import pytest
import torch

from fedtaco.data import TensorSamples
from fedtaco.experiment import RunOptions, build_spec
from fedtaco.experiment.prepared_run import PreparedSimulation
from fedtaco.methods import METHODS, AveragedMemory, Expulsion, FedDyn, ServerState, Taco
from fedtaco.testing import make_federation
from fedtaco.testing.small_federation import constants, skewed_clients
from fedtaco.trust import NormDetector

WITH_MEANS = [name for name, method in METHODS.items() if issubclass(method, AveragedMemory)]


@pytest.mark.parametrize("name", WITH_MEANS)
def test_means_become_those_of_the_remaining_clients(name):
    method, weights = METHODS[name](), torch.zeros(3, dtype=torch.float64)
    vectors = {own: torch.randn(5, 3, dtype=torch.float64) for own in method.averaged}
    memory = {**method.server_memory(weights, constants()), **{own: rows.mean(0) for own, rows in vectors.items()}}
    memories = {client: {own: rows[client] for own, rows in vectors.items()} for client in (1, 4)}
    after = method.remove_clients(ServerState(weights, memory), Expulsion(torch.tensor([1, 4]), 5, memories))
    for own, rows in vectors.items():
        torch.testing.assert_close(after.memory[own], rows[[0, 2, 3]].mean(0))


def test_feddyn_keeps_the_mean_of_the_client_models_and_moves_the_starting_point():
    displacements = torch.tensor([[1.0, 0.0], [3.0, 6.0]])
    server = ServerState(torch.ones(2), {"displacement": displacements.mean(0)})
    after = FedDyn().remove_clients(server, Expulsion(torch.tensor([1]), 2, {1: {"displacement": displacements[1]}}))
    assert after.weights.tolist() == [1.0, 1.0]
    assert FedDyn().broadcast(after, torch.tensor([0])).start.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("behaviour", ["zero", "replay:late", "gaussian"])
@pytest.mark.parametrize("method", WITH_MEANS)
def test_means_stay_those_of_the_remaining_clients(method, behaviour):
    config = build_spec(
        method=method, rounds=9, local_steps=4, clients=8, freeloaders=3, behaviour=behaviour, detector="guard"
    )
    federation = PreparedSimulation.prepare(config, RunOptions()).federation
    state = list(federation.rounds(federation.initial))[-1].state
    remaining = [client for client in range(8) if not state.expelled[client]]
    assert len(remaining) == 5
    for name in METHODS[method].averaged:
        mean = torch.stack([state.memories[client][name] for client in remaining]).mean(0)
        torch.testing.assert_close(state.server.memory[name], mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", WITH_MEANS)
def test_means_contain_clipped_uploads_as_the_server_uses_them(method):
    """One client's samples are scaled up, so that its uploads are far longer than the others and are clipped."""
    clients = skewed_clients()
    clients[2] = TensorSamples(100 * clients[2].x, clients[2].y)
    detector = NormDetector(max_norm=2.0, long_uploads="clip")
    federation = make_federation(METHODS[method](), clients=clients, steps=[1, 2, 3, 4, 5], detector=detector)
    finished = list(federation.rounds(federation.initial))
    assert all(2 in {decision.client for decision in one.record.decisions} for one in finished)
    state = finished[-1].state
    for name in METHODS[method].averaged:
        mean = torch.stack([memory[name] for memory in state.memories.values()]).mean(0)
        torch.testing.assert_close(state.server.memory[name], mean)


def test_taco_output_ignores_expelled_clients():
    server = ServerState(torch.zeros(2), {"alpha": torch.tensor([0.8, 0.2, 0.4]), "previous": torch.ones(2)})
    after = Taco().remove_clients(server, Expulsion(torch.tensor([0]), 3, {0: {}}))
    torch.testing.assert_close(Taco().output(after), torch.full((2,), -0.7))


def test_taco_output_is_the_global_model_once_all_clients_are_expelled():
    weights = torch.ones(2)
    memory = {"alpha": torch.full((3,), torch.nan), "previous": torch.zeros(2)}
    assert torch.equal(Taco().output(ServerState(weights, memory)), weights)
