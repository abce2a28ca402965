"""The optimizers of local training: those of torch, for one client or a stack, and their number of effective steps."""

from __future__ import annotations

import pytest
import torch

from fedtaco.local_optimizer import OPTIMIZERS, Adam, AdamW, LocalOptimizer, Sgd
from fedtaco.settings.declarations import SharedSettings, declared

LR, STEPS = 0.1, 7
CURVATURE = torch.linspace(0.2, 3.0, 6, dtype=torch.float64)
START = torch.linspace(-2, 1, 6, dtype=torch.float64)


def gradient(x):
    return CURVATURE * x - 1


def descend(optimizer, start, scale=1.0):
    """Take steps of FedAvg, whose direction is the gradient."""
    x, moments, state = start.clone(), (), ()
    for number in range(1, STEPS + 1):
        g = optimizer.add_decay(optimizer.clip(scale * gradient(x)), x)
        g, moments = optimizer.transform(g, x, moments, number)
        step, state = optimizer.descend(g, state)
        x = x - LR * step
    return x


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize(
    ("optimizer", "theirs", "options"),
    [
        (Sgd, torch.optim.SGD, {}),
        (Sgd, torch.optim.SGD, {"momentum": 0.9}),
        (Sgd, torch.optim.SGD, {"momentum": 0.6, "nesterov": True}),
        (Adam, torch.optim.Adam, {}),
        (AdamW, torch.optim.AdamW, {}),
    ],
)
def test_steps_are_those_of_torch(optimizer, theirs, options, decay):
    x = START.clone().requires_grad_()
    reference = theirs([x], lr=LR, weight_decay=decay, **options)
    for _ in range(STEPS):
        x.grad = gradient(x.detach())
        reference.step()
    ours = descend(optimizer(weight_decay=decay, **options), START)
    torch.testing.assert_close(ours, x.detach(), rtol=1e-13, atol=1e-13)


def test_clipping_scales_long_gradients_and_leaves_short_ones():
    long, short = torch.tensor([3.0, 4.0]), torch.tensor([0.3, 0.4])
    optimizer = Sgd(clip_norm=1.0)
    torch.testing.assert_close(optimizer.clip(long), torch.tensor([0.6, 0.8]))
    assert torch.equal(optimizer.clip(short), short)
    assert torch.equal(optimizer.clip(torch.zeros(2)), torch.zeros(2))
    assert optimizer.clip(torch.tensor([torch.nan, 1.0])).isnan().any()
    assert Sgd().clip(long) is long


ALL = {"weight_decay": 0.1, "clip_norm": 1.0}


@pytest.mark.parametrize(
    "optimizer", [Sgd(momentum=0.9, **ALL), Sgd(momentum=0.9, nesterov=True, **ALL), Adam(**ALL), AdamW(**ALL)], ids=str
)
def test_a_stack_of_clients_is_the_same_as_each_client_alone(optimizer):
    scales = torch.tensor([[0.01], [1.0], [50.0]], dtype=torch.float64)
    together = descend(optimizer, START.expand(3, -1), scales)
    for row, scale in zip(together, scales, strict=True):
        torch.testing.assert_close(row, descend(optimizer, START, scale), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("optimizer", [Sgd(), Sgd(momentum=0.9), Sgd(momentum=0.9, nesterov=True), Adam()], ids=str)
def test_hooks_do_not_change_their_arguments(optimizer):
    g, x = torch.ones(2), torch.ones(2)
    _, moments = optimizer.transform(g, x, (), 1)
    _, state = optimizer.descend(g, ())
    before = [tensor.clone() for tensor in (*moments, *state)]
    optimizer.transform(g, x, moments, 2)
    optimizer.descend(g, state)
    for tensor, value in zip((g, x, *moments, *state), (torch.ones(2), torch.ones(2), *before), strict=True):
        assert torch.equal(tensor, value)


def test_a_direction_that_its_method_changes_later_does_not_change_the_momentum():
    direction = torch.ones(2)
    _, state = Sgd(momentum=0.5).descend(direction, ())
    direction.zero_()
    assert torch.equal(state[0], torch.ones(2))


# Effective steps


@pytest.mark.parametrize("steps", [1, 2, 10, 500])
@pytest.mark.parametrize("momentum", [0.1, 0.5, 0.9, 0.99])
def test_effective_steps_have_a_closed_form(momentum, steps):
    heavy = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    assert Sgd(momentum=momentum).effective_steps(steps) == pytest.approx(heavy, rel=1e-10)
    nesterov = Sgd(momentum=momentum, nesterov=True).effective_steps(steps)
    assert nesterov == pytest.approx(steps + momentum * heavy, rel=1e-10)


@pytest.mark.parametrize("nesterov", [False, True])
def test_effective_steps_are_the_update_of_unit_directions(nesterov):
    optimizer, state, total = Sgd(momentum=0.8, nesterov=nesterov), (), torch.zeros(1, dtype=torch.float64)
    for steps in range(1, 20):
        step, state = optimizer.descend(torch.ones(1, dtype=torch.float64), state)
        total += step
        assert optimizer.effective_steps(steps) == pytest.approx(float(total), rel=1e-14)


def test_effective_steps_are_exact_for_a_momentum_close_to_one():
    assert Sgd(momentum=1 - 1e-12).effective_steps(10) == pytest.approx(55, rel=1e-9)


@pytest.mark.parametrize("optimizer", [Sgd(), Adam(), AdamW(weight_decay=0.1)], ids=str)
def test_plain_sgd_and_outer_optimizers_have_as_many_effective_steps_as_steps(optimizer):
    assert optimizer.effective_steps(7) == 7


def test_every_optimizer_can_be_set():
    assert declared(SharedSettings)["optimizer"][1].domain.choices == tuple(OPTIMIZERS)
    assert all(issubclass(optimizer, LocalOptimizer) for optimizer in OPTIMIZERS.values())
