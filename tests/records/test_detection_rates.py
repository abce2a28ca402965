"""Figures about freeloaders and expulsions, computed from histories written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedtaco.records import ClientRecord, History, PartitionRecord, RoundRecord
from fedtaco.records.detection_rates import Rates, expulsions, freeloader_weight, summarize_detection, threshold_rates

PARTITION = PartitionRecord([], np.ones((4, 2)), freeloaders=[2, 3])


def make_history(alphas, expelled=None, weights=(0.25,) * 4):
    """Return a history with one round per row of α; ``expelled`` maps clients to rounds."""
    out = expelled or {}
    rounds = [RoundRecord(number, 0.5, 1.0, None, 1.0) for number in range(1, len(alphas) + 1)]
    clients = [
        ClientRecord(
            number, client, {"alpha": alpha, "weight": weights[client]}, None, expelled=out.get(client) == number
        )
        for number, row in enumerate(alphas, 1)
        for client, alpha in enumerate(row)
        if out.get(client, number) >= number
    ]
    return History(rounds, clients)


def test_summary_of_freeloaders_and_expulsions():
    history = make_history([[0.1] * 4] * 4, expelled={0: 2, 3: 4})
    summary = summarize_detection(expulsions(history), PARTITION, freeloader_weight(history, PARTITION))
    assert summary == {
        "freeloaders": 2,
        "caught": 1,
        "honest_expelled": 1,
        "true_positive_rate": 0.5,
        "false_positive_rate": 0.5,
        "mean_round_caught": 4.0,
        "freeloader_weight": 0.5,
    }
    assert summarize_detection({}, PartitionRecord([], np.ones((4, 2))), None) is None


def test_expelled_clients_have_no_weight_afterwards():
    history = make_history([[0.1] * 4] * 4, expelled={2: 1, 3: 2})
    assert freeloader_weight(history, PARTITION) == pytest.approx((0.25 * 2 + 0.25) / 4)


def test_rates_of_the_papers_rule_for_recorded_alphas():
    """In ten rounds, λ = T/10 is one strike, T/5 two, T/2 five."""
    honest, often, always = [0.45] * 2 + [0.1] * 8, [0.95] * 4 + [0.55] * 6, [0.85] * 10
    rates = threshold_rates(make_history(list(zip(honest, [0.1] * 10, often, always, strict=True))), PARTITION)
    assert rates[0.4, "T/10"] == rates[0.4, "T/5"] == Rates(1.0, 0.5)
    assert rates[0.4, "T/2"] == Rates(1.0, 0.0)
    assert rates[0.8, "T/2"] == Rates(0.5, 0.0)
    assert rates[0.9, "T/5"] == Rates(0.5, 0.0)
    assert rates[1.0, "T/10"] == Rates(0.0, 0.0)
