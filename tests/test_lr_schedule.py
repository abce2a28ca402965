"""Schedules of the learning rate: those of torch, and texts that do not describe one."""

from __future__ import annotations

import pytest
import torch
from torch.optim import lr_scheduler

from fedtaco import InvalidInput
from fedtaco.lr_schedule import parse_schedule
from fedtaco.methods import Constants

ROUNDS = 12


def rates_of_torch(schedule):
    """Return the rates of torch's schedule, which is stepped once per round."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    scheduler, rates = schedule(optimizer), []
    for _ in range(ROUNDS):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize(
    ("text", "theirs"),
    [
        ("constant", lambda optimizer: lr_scheduler.ConstantLR(optimizer, factor=1.0)),
        ("step:5,0.2", lambda optimizer: lr_scheduler.StepLR(optimizer, 5, 0.2)),
        ("step:1,.5", lambda optimizer: lr_scheduler.StepLR(optimizer, 1, 0.5)),
        ("exponential:0.998", lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.998)),
        ("cosine", lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, ROUNDS)),
    ],
)
def test_rates_are_those_of_torch(text, theirs):
    schedule = parse_schedule(text)
    rates = [0.3 * schedule.factor(number, ROUNDS) for number in range(1, ROUNDS + 1)]
    assert rates == pytest.approx(rates_of_torch(theirs), rel=1e-12)
    assert rates[0] == 0.3
    assert rates[-1] > 0


def test_a_cosine_would_reach_zero_in_the_round_after_the_last():
    factors = [parse_schedule("cosine").factor(number, 4) for number in range(1, 6)]
    assert factors == pytest.approx([1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0])


@pytest.mark.parametrize(
    "text",
    [
        *("", "Constant", "constant:1", "cosine:3", "linear", "exponential", "exponential:", "exponential:1"),
        *(
            "exponential:0",
            "exponential:0.0",
            "exponential:.",
            "exponential:-0.5",
            "exponential:1.1",
            "exponential:nan",
        ),
        *("exponential:0.5,2", "exponential:٠.٥", "exponential: 0.5", "exponential:0.5\n", "exponential:nan"),
        *("step", "step:10", "step:10,", "step:0,0.5", "step:-1,0.5", "step:1.5,0.5", "step:10,1", "step:10, 0.5"),
        *("step:٣,0.5", "step:12345678,0.5", f"step:{'9' * 5000},0.5", f"exponential:0.{'9' * 5000}"),
    ],
    ids=lambda text: text[:20],
)
def test_other_texts_are_refused_with_the_valid_forms(text):
    with pytest.raises(InvalidInput) as error:
        parse_schedule(text)
    assert str(error.value).startswith("lr_schedule is '")
    assert "it must be constant, cosine, step:10,0.5 (every 10 rounds times 0.5) or exponential:0.998" in str(
        error.value
    )


def test_both_rates_of_a_round_follow_the_schedule():
    run = Constants(5, ROUNDS, 3, local_lr=0.1, server_lr=0.7, lr_schedule=parse_schedule("step:2,0.5"))
    constants = run.in_round(5)
    assert (constants.round, constants.local_lr, constants.server_lr) == (5, 0.025, 0.175)
    assert Constants(5, ROUNDS, 3, 0.1).in_round(2).server_lr is None
    with pytest.raises(ValueError, match="already the constants of round 5"):
        constants.in_round(6)
