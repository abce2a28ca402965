"""How far taco-steady steps, and where its clients start."""

from __future__ import annotations

import math

import pytest
import torch
from made_uploads import make_uploads

from fedtaco.methods import Constants, ServerState, TacoSteady, TacoSteadyUniform

TWO_DIRECTIONS = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]], dtype=torch.float64)
MOSTLY_ZERO = torch.tensor([1.0, 1.0] + 18 * [0.0], dtype=torch.float64).diag()
UNEQUAL = torch.tensor([100.0, 1, 2, 3, 4, 5], dtype=torch.float64).diag()
ONE_LONG = torch.tensor([17.8] + 18 * [0.6] + [0.0], dtype=torch.float64).diag()
CASES = {  # uploads, round, a, and max(a, b)
    # α of an upload that points in the direction of the mean is 1 - 1/N, here for ten uploads
    "all agree": (torch.ones(10, 3, dtype=torch.float64), 50, 0.9, 0.9),
    # cosines with the mean (3, 1)/4 are 3/√10 three times, and 1/√10
    "mean of unequal α": (TWO_DIRECTIONS, 50, *2 * [3 / 4 * (3 * 3 + 1) / 4 / math.sqrt(10)]),
    "orthogonal, later": (torch.eye(20, dtype=torch.float64), 50, *2 * [19 / 20 / math.sqrt(20)]),
    "orthogonal, third round": (torch.eye(20, dtype=torch.float64), 3, 1 / 3, 1 / 3),
    "first round": (torch.eye(20, dtype=torch.float64), 1, 1.0, 1.0),
    "below alpha_min": (torch.eye(200, dtype=torch.float64), 50, 0.1, 0.1),
    # cosines of the others with the mean are about 0.6 / 17.8
    "one is long, and one zero": (ONE_LONG, 50, 0.1, 17.8 / 20 / 0.6),
    "the others have unequal lengths": (UNEQUAL, 50, 0.1, 100 / 6 / 3.5),
    "few are not zero": (MOSTLY_ZERO, 50, 0.1, 0.1),
    "all are zero": (torch.zeros(20, 3, dtype=torch.float64), 50, 0.1, 0.1),
}


@pytest.mark.parametrize("method", [TacoSteady(), TacoSteadyUniform()], ids=lambda method: method.name)
@pytest.mark.parametrize("case", CASES)
def test_steps_and_starting_points(case, method):
    matrix, round_number, a, divisor = CASES[case]
    clients, weights = len(matrix), torch.zeros(matrix.shape[1], dtype=torch.float64)
    constants = Constants(clients=clients, rounds=99, local_steps=1, local_lr=1.0)
    before = ServerState(weights, method.server_memory(weights, constants))
    before = before.with_memory(rounds=torch.tensor([round_number - 1.0], dtype=torch.float64))
    after = method.aggregate(before, make_uploads(matrix))
    fast = -matrix.mean(0) / divisor
    torch.testing.assert_close(after.memory["fast"], fast)
    torch.testing.assert_close(after.weights, fast * 3 / (round_number + 2))
    start = method.broadcast(after, torch.arange(clients)).start
    torch.testing.assert_close(start, after.weights + a * (fast - after.weights))
