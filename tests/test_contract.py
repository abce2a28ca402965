"""One contract over every registered method, its options, and sketches of the kinds still to come."""

from __future__ import annotations

import pytest
from sketches import SKETCHES

from fedtaco.methods import METHODS, FedAvg, FedProxTaco, Method, ScaffoldTaco, Stem, Taco
from fedtaco.testing import CONTRACT, check_method

SUBJECTS: list[Method] = [
    *(kind() for kind in METHODS.values()),
    Taco(delta_scale="literal", gamma=0.5),
    Taco(gamma=0.2),
    Stem(server_momentum="off"),
    Stem(server_momentum="literal"),
    FedProxTaco(coefficient="replace-factor"),
    FedProxTaco(coefficient="replace-alpha"),
    ScaffoldTaco(coefficient="replace-alpha"),
    *SKETCHES,
]


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", SUBJECTS, ids=str)
def test_method_keeps_the_contract(method, check):
    check(method)


def test_a_method_that_breaks_the_contract_is_told_so():
    class Greedy(FedAvg):
        name = "greedy"

        def weigh(self, server, uploads):
            return 2 * uploads.shares

    with pytest.raises(AssertionError, match="greedy: the weights sum to 2"):
        check_method(Greedy())
