"""The stability monitor, on uploads made by hand and in runs."""

from __future__ import annotations

import pytest
import torch
from made_uploads import make_uploads

import fedtaco
from fedtaco.diagnostics import stability
from fedtaco.diagnostics.stability import Stability, examine
from fedtaco.methods import METHODS, FedAvg, FoolsGold, Method, ServerState, Taco

NO_STATE = ServerState(torch.zeros(0))
SWINGING = {"dataset": "digits", "rounds": 12, "local_steps": 50}


def camps(pull, common=1.0, clients=6, shift=0.0):
    """Return uploads of two camps, clients with even and with odd numbers, which agree about the second coordinate."""
    matrix = torch.full((clients, 2), common, dtype=torch.float64)
    matrix[:, 0] = pull * (torch.arange(clients) % 2 * 2 - 1) + shift
    return make_uploads(matrix)


def test_clients_are_divided_into_the_two_camps():
    found = examine(FoolsGold(), NO_STATE, camps(2.0))
    assert found.camps == ([0, 2, 4], [1, 3, 5])
    assert found.sides.tolist() == pytest.approx([-1, 1] * 3)
    assert found.share == pytest.approx(4 / 5)


def test_a_client_without_an_opinion_is_in_no_camp():
    matrix = torch.tensor([[-2.0, 1.0], [2.0, 1.0], [0.1, 1.0], [-2.0, 1.0], [2.0, 1.0]])
    found = examine(FoolsGold(), NO_STATE, make_uploads(matrix))
    assert found.camps == ([0, 3], [1, 4])


def test_the_gain_does_not_depend_on_who_is_ahead():
    """It is that at balance, although the camp that is ahead has most of the weight."""
    expected = examine(FoolsGold(), NO_STATE, camps(2.0)).gain
    assert examine(FoolsGold(), NO_STATE, camps(2.0, shift=1.5)).gain == pytest.approx(expected, rel=1e-6)


def test_the_gain_is_that_of_weights_of_shifted_uploads():
    """The weights are computed from norms and cosines; the uploads themselves are not shifted."""
    matrix = torch.randn(8, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.4
    method, uploads = Taco(), make_uploads(matrix)
    spread = matrix - matrix.mean(0)
    direction = torch.linalg.svd(spread).Vh[0]
    balanced = matrix - (matrix.mean(0) @ direction) * direction
    step = stability.SHIFT * balanced.mean(0).norm()

    def aggregate(shift):
        shifted = balanced + shift * direction
        return method.weigh(NO_STATE, make_uploads(shifted)) @ shifted @ direction

    expected = float((aggregate(step) - aggregate(-step)) / (2 * step))
    assert examine(method, NO_STATE, uploads).gain == pytest.approx(expected, rel=1e-9)


def test_many_uploads_are_projected_on_the_direction_of_some(monkeypatch):
    uploads = camps(2.0, clients=60)
    whole = examine(FoolsGold(), NO_STATE, uploads)
    monkeypatch.setattr(stability, "MAX_ROWS", 17)
    some = examine(FoolsGold(), NO_STATE, uploads)
    assert some.gain == pytest.approx(whole.gain)
    assert some.camps == whole.camps


@pytest.mark.parametrize("name", sorted(METHODS))
def test_only_weights_that_depend_on_the_uploads_have_a_gain(name):
    method = METHODS[name]()
    if type(method).weigh is Method.weigh:
        assert examine(method, NO_STATE, camps(2.0)) is None
    elif name not in ("taco", "taco-aggregation", "foolsgold", "foolsgold-original"):
        assert examine(method, NO_STATE, camps(2.0)).gain == pytest.approx(1)


@pytest.mark.parametrize(
    "uploads",
    [camps(0.0), camps(2.0, common=0.0), camps(2.0, clients=1), camps(0.0, common=0.0)],
    ids=["no disagreement", "nothing in common", "one client", "zeros"],
)
def test_without_a_gain_nothing_is_recorded(uploads):
    assert examine(FoolsGold(), NO_STATE, uploads) is None


def found(**changes):
    usual = {"gain": 4.0, "momentum": 0.6, "relaxation": 1.0, "share": 0.5}
    return Stability(**{**usual, **changes}, sides=torch.tensor([-1.0, 1.0]), clients=[4, 7])


def test_a_warning_names_the_camps_the_gain_the_period_and_what_to_do():
    assert found().warning == (
        "aggregation weights amplify a disagreement between clients {4} and {7} 4.0-fold; the accuracy is likely to "
        "oscillate with a period of about 3 rounds; use taco-steady, whose weights do not depend on the uploads, or "
        "average the last models (average_last)"
    )
    assert "period of about 2 rounds" in found(momentum=0.0).warning


@pytest.mark.parametrize(
    "changes", [{"gain": 1.5}, {"share": 0.1}, {"gain": 2.4, "momentum": 0.0}, {"relaxation": 0.5, "momentum": 0.0}]
)
def test_no_warning_if_two_camps_would_settle_or_there_are_none(changes):
    assert found(**changes).warning is None


def test_long_camps_are_cut():
    numbers = list(range(20))
    crowd = Stability(4.0, 0.6, 1.0, 0.5, torch.tensor([-1.0, 1.0] * 10), numbers)
    assert "clients {0, 2, 4, 6, 8, 10, 12, 14, … 2 more} and {1, 3," in crowd.warning


def test_a_client_that_differs_from_all_others_is_named_alone():
    matrix = torch.tensor([[-0.1, 1.0]] * 6 + [[8.0, 1.0]] + [[0.1, 1.0]] * 14, dtype=torch.float64)
    sides = examine(FoolsGold(), NO_STATE, make_uploads(matrix)).sides
    alone = Stability(4.0, 0.6, 1.0, 0.5, sides, list(range(21)))
    assert "between clients {6} and the others 4.0-fold" in alone.warning


def test_a_run_records_gain_warning_and_sides():
    result = fedtaco.run("foolsgold", **SWINGING)
    gains = result.history.column("gain")
    assert all(gain > 1 for gain in gains)
    assert any(record.warning is not None for record in result.history)
    sides = [record.quantities["side"] for record in result.history.clients]
    assert max(sides) == pytest.approx(1) or min(sides) == pytest.approx(-1)
    assert all(-1 <= side <= 1 for side in sides)


@pytest.mark.parametrize("method", ["fedavg", "fedacg", "taco-correction"])
def test_methods_with_uniform_weights_are_silent(method):
    result = fedtaco.run(method, **{**SWINGING, "rounds": 2})
    assert all(record.gain is None and record.warning is None for record in result.history)
    assert all(record.quantities["side"] is None for record in result.history.clients)


def test_the_monitor_does_not_change_the_run(monkeypatch):
    watched = fedtaco.run("taco", **{**SWINGING, "rounds": 3})
    monkeypatch.setattr("fedtaco.federation.examine", lambda *_: None)
    unwatched = fedtaco.run("taco", **{**SWINGING, "rounds": 3})
    for own, other in zip(watched.model.parameters(), unwatched.model.parameters(), strict=True):
        assert torch.equal(own, other)


def test_pool_records_what_serial_does():
    serial, pool = (fedtaco.run("taco", **{**SWINGING, "rounds": 3, "engine": engine}) for engine in ("serial", "pool"))
    assert serial.history.column("gain") == pool.history.column("gain")
    assert serial.history.column("warning") == pool.history.column("warning")


def test_fedavg_with_two_clients_is_not_examined():
    assert examine(FedAvg(), NO_STATE, camps(2.0, clients=2)) is None
