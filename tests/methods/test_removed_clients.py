"""What methods change when clients are expelled: Scaffold's variate, and TACO's output z."""

from __future__ import annotations

import pytest
import torch

from fedtaco.experiment import RunOptions, resolve_config
from fedtaco.experiment.prepared_run import PreparedRun
from fedtaco.methods import Expulsion, Scaffold, ServerState, Taco


def test_scaffold_variate_becomes_the_mean_of_the_remaining_clients():
    variates = torch.randn(5, 3, dtype=torch.float64)
    server = ServerState(torch.zeros(3), {"variate": variates.mean(0)})
    memories = {client: {"variate": variates[client]} for client in (1, 4)}
    after = Scaffold().remove_clients(server, Expulsion(torch.tensor([1, 4]), 5, memories))
    torch.testing.assert_close(after.memory["variate"], variates[[0, 2, 3]].mean(0))


@pytest.mark.parametrize("behaviour", ["zero", "replay:late", "gaussian"])
def test_scaffold_variate_stays_the_mean_of_the_remaining_clients(behaviour):
    config = resolve_config(
        method="scaffold", rounds=9, local_steps=4, clients=8, freeloaders=3, behaviour=behaviour, detector="guard"
    )
    simulator = PreparedRun.prepare(config, RunOptions()).simulator
    state = list(simulator.rounds(simulator.initial_state()))[-1].state
    remaining = [client for client in range(8) if not state.detector_memory["expelled"][client]]
    assert len(remaining) == 5
    mean = torch.stack([state.memories[client]["variate"] for client in remaining]).mean(0)
    torch.testing.assert_close(state.server.memory["variate"], mean, rtol=1e-4, atol=1e-5)


def test_taco_output_ignores_expelled_clients():
    server = ServerState(torch.zeros(2), {"alpha": torch.tensor([0.8, 0.2, 0.4]), "previous": torch.ones(2)})
    after = Taco().remove_clients(server, Expulsion(torch.tensor([0]), 3, {0: {}}))
    torch.testing.assert_close(Taco().output(after), torch.full((2,), -0.7))


def test_taco_output_is_the_global_model_once_all_clients_are_expelled():
    weights = torch.ones(2)
    memory = {"alpha": torch.full((3,), torch.nan), "previous": torch.zeros(2)}
    assert torch.equal(Taco().output(ServerState(weights, memory)), weights)
