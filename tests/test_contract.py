"""One contract over every registered method, its options, and sketches of the kinds still to come."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from sketches import SKETCHES

from fedtaco import InvalidInput
from fedtaco.methods import METHODS, FedAvg, FedProxTaco, Method, ScaffoldTaco, Stem, Taco
from fedtaco.parameters import parameter
from fedtaco.testing import METHOD_CONTRACT, check_method

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


@pytest.mark.parametrize("check", METHOD_CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", SUBJECTS, ids=str)
def test_method_keeps_the_contract(method, check):
    check(method)


@dataclass(frozen=True)
class Misspelt(Method):
    name = "misspelt"
    summary = "never called"

    def agregate(self, server, uploads):
        return server


@dataclass(frozen=True)
class Forgetful(Method):
    name = "forgetful"
    summary = "declares a memory and drops it"

    def client_memory(self, weights, constants):
        return {"last": torch.zeros_like(weights)}

    def finish(self, update, local):
        return {"update": update}, {}


@dataclass(frozen=True)
class Half(Method):
    name = "half"
    summary = "gives half an answer"

    def finish(self, update, local):
        return {"update": update}


@dataclass(frozen=True)
class Whole(Method):
    name = "whole"
    summary = "reduces over everything"

    def finish(self, update, local):
        return {"update": update / (1 + update.norm())}, local.memory


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Misspelt(), "did you mean 'aggregate'"),
        (Forgetful(), r"client_memory names \['last'\], but finish keeps \[\]"),
        (Half(), "finish must give a pair"),
        (Whole(), "of stacked clients differs"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_common_mistakes_are_told(method, words):
    with pytest.raises(AssertionError, match=words):
        check_method(method)


def test_classes_that_cannot_be_methods_are_refused():
    class NoName(Method):
        summary = "has no name"

    class Undecorated(Method):
        name, summary = "undecorated", "forgot @dataclass"
        k: float = parameter(1.0, "k")

    @dataclass(frozen=True)
    class Plain(Method):
        name, summary = "plain", "has a field that is no parameter"
        k: float = 1.0

    class Climbing(Method):
        name, summary = "../up", "has a path for a name"

    for kind, words in [
        (NoName, "needs a class attribute 'name'"),
        (Undecorated, "decorate it with @dataclass"),
        (Plain, "The field k of the method Plain must be made with parameter"),
        (Climbing, "small letters, digits and hyphens"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            kind()


def test_a_method_that_breaks_the_contract_is_told_so():
    class Greedy(FedAvg):
        name = "greedy"

        def weigh(self, server, uploads):
            return 2 * uploads.shares

    with pytest.raises(AssertionError, match="greedy: the weights sum to 2"):
        check_method(Greedy())
