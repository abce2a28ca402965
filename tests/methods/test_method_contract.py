"""Every registered method, variants of them, and sketches of other kinds of methods fulfil the method contract."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from fedtaco.methods import (
    METHODS,
    FedAdam,
    FedAvg,
    FedMoS,
    FedProxTaco,
    FoolsGoldOriginal,
    Method,
    ScaffoldTaco,
    Stem,
    StemOriginal,
    Taco,
)
from fedtaco.testing import METHOD_CONTRACT, check_method

SUBJECTS: list[Method] = [
    *(cls() for cls in METHODS.values()),
    Taco(delta_scale="literal", gamma=0.5),
    Taco(gamma=0.2),
    Stem(server_momentum="off"),
    Stem(server_momentum="literal"),
    FedProxTaco(coefficient="replace-factor"),
    FedProxTaco(coefficient="replace-alpha"),
    ScaffoldTaco(coefficient="replace-alpha"),
    FedMoS(last_gradient="same-batch"),
    FoolsGoldOriginal(scale="sum"),
    StemOriginal(server_momentum="eta"),
    FedAdam(v0="zero", bias_correction="on"),
]


@pytest.mark.parametrize("check", METHOD_CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", SUBJECTS, ids=str)
def test_method_fulfils_the_contract(method, check):
    check(method)


@dataclass(frozen=True)
class MisspeltHook(Method):
    name = "misspelt-hook"
    summary = "defines a hook that is never called"

    def agregate(self, server, uploads):
        return server


@dataclass(frozen=True)
class LosesMemory(Method):
    name = "loses-memory"
    summary = "declares client memory but does not return it"

    def client_memory(self, weights, constants):
        return {"last": torch.zeros_like(weights)}

    def finish(self, update, local):
        return {"update": update}, {}


@dataclass(frozen=True)
class NoPair(Method):
    name = "no-pair"
    summary = "returns the upload without the memory"

    def finish(self, update, local):
        return {"update": update}


@dataclass(frozen=True)
class ReducesOverClients(Method):
    name = "reduces-over-clients"
    summary = "reduces over all dimensions of an update"

    def finish(self, update, local):
        return {"update": update / (1 + update.norm())}, local.memory


@dataclass(frozen=True)
class TakesTheMatrix(Method):
    name = "takes-the-matrix"
    summary = "takes the median of the uploads from a matrix of all of them"

    def aggregate(self, server, uploads):
        return server.moved(uploads.vectors["update"].median(0).values)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (MisspeltHook(), "did you mean 'aggregate'"),
        (LosesMemory(), r"client_memory declares \['last'\], but finish returns \[\]"),
        (NoPair(), "finish must return a pair"),
        (ReducesOverClients(), "of stacked clients differs"),
        (TakesTheMatrix(), r"takes-the-matrix .* no whole matrix; call uploads.average\(name\), or total"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_common_mistakes_are_explained(method, message):
    with pytest.raises(AssertionError, match=message):
        check_method(method)


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (2, "weigh of rescaled returned weights that sum to 2; divide them by their sum"),
        (1 + 1e-6, "rescaled: the weights sum to 1.000001"),
    ],
)
def test_weights_that_do_not_sum_to_one_are_reported(factor, words):
    class Rescaled(FedAvg):
        name = "rescaled"

        def weigh(self, server, uploads):
            return factor * uploads.shares

    with pytest.raises(AssertionError, match=words):
        check_method(Rescaled())
