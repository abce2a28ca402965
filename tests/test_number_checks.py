"""Numbers that are not finite, or so large that the first step overflows, are named before the first round."""

from __future__ import annotations

import re

import pytest
import torch
from small_training import WithTargets, make_clients, train
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import fedtaco
from fedtaco import InvalidInput
from fedtaco.data import NumberSearch, TensorSamples, as_samples
from fedtaco.models import FlatModel
from fedtaco.sample_checks import check_samples, check_weights

X = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
LABELS, PRICES = torch.arange(20) % 3, X[:, 0]
NOT_FINITE = [torch.nan, torch.inf, -torch.inf]
FORMS = {"tensors": lambda x, y: (x, y), "Dataset": WithTargets}


def regression():
    return nn.Sequential(nn.Linear(5, 1), nn.Flatten(0))


def check(module, data, loss=cross_entropy):
    check_samples(FlatModel(module), {"client 0": as_samples(data)}, loss)


def changed(tensor, index, value):
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


# Inputs and targets that are not finite


@pytest.mark.parametrize("value", NOT_FINITE)
def test_inputs_that_are_not_finite_are_found(value):
    x = changed(X, (13, 2), value)
    with pytest.raises(InvalidInput, match=f"Input 13 of client 1 contains {value:g}; remove such samples, or replace"):
        train(clients=[*make_clients(1), (x, LABELS)])
    with pytest.raises(InvalidInput, match="Input 13 of client 0 contains"):
        check(nn.Linear(5, 3), (({"input": x.half()}), LABELS))


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("form", FORMS)
def test_targets_that_are_not_finite_are_found(form, value):
    clients = [(X, PRICES), FORMS[form](X, changed(PRICES, 13, value))]
    with pytest.raises(InvalidInput, match=f"Target 13 of client 1 contains {value:g}; remove such samples, or replac"):
        train(model=regression(), clients=clients, loss=mse_loss)


@pytest.mark.parametrize("data", [(changed(X, 13, torch.nan), PRICES), (X, changed(PRICES, 13, torch.nan))])
def test_only_the_samples_of_the_owner_count(data):
    whole, slices = as_samples(data), lambda rows: tuple(part[rows] for part in data)
    for without in (whole.subset(range(13)), slices(slice(13))):
        check(regression(), without, mse_loss)
    for own in (whole.subset(range(10, 20)), slices(slice(10, 20))):
        with pytest.raises(InvalidInput, match=r"^(Input|Target) 3 of client 0 contains nan"):
            check(regression(), own, mse_loss)


def test_first_inputs_of_a_dataset_are_checked():
    with pytest.raises(InvalidInput, match="Input 0 of client 0 contains nan"):
        check(nn.Linear(5, 3), WithTargets(torch.full((20, 5), torch.nan), LABELS))


def test_inputs_that_are_not_finite_when_they_are_prepared_are_found():
    samples = TensorSamples(torch.zeros(20, 5), LABELS, prepare=torch.log)
    with pytest.raises(InvalidInput, match="Input 0 of client 0 contains -inf"):
        check(nn.Linear(5, 3), samples)


def test_input_of_a_dataset_is_named_by_its_index():
    """It is read because its label is the highest."""
    with pytest.raises(InvalidInput, match="Input 17 of client 0 contains nan"):
        check(nn.Linear(5, 4), WithTargets(changed(X, 17, torch.nan), changed(LABELS, 17, 3)))


def test_memory_that_clients_share_is_searched_once(monkeypatch):
    searched = []
    aminmax = torch.Tensor.aminmax
    monkeypatch.setattr(torch.Tensor, "aminmax", lambda tensor: searched.append(tensor.numel()) or aminmax(tensor))
    x, y = torch.randn(60, 5), torch.randn(60)
    clients = [(x[start : start + 3], y[start : start + 3]) for start in range(0, 60, 3)]
    samples = {f"client {number}": as_samples(data) for number, data in enumerate(clients)}
    check_samples(FlatModel(regression()), samples, mse_loss)
    assert searched == [300, 60]


# Numbers that are too large


OVERFLOWS = {
    "cross entropy": (nn.Linear(5, 3), LABELS, cross_entropy),
    "squared error": (regression(), PRICES, mse_loss),
    "batch norm": (nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)), LABELS, cross_entropy),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", ["1e+20", "1e+30"])
@pytest.mark.parametrize("case", OVERFLOWS)
def test_inputs_so_large_that_the_first_step_overflows_are_named(case, scale, form):
    module, y, loss = OVERFLOWS[case]
    x = X.clamp(-1, 1) * float(scale)
    message = (
        rf"^Before the first round, .* on samples of client 0, with inputs up to {re.escape(scale)} .*; standardise"
    )
    with pytest.raises(InvalidInput, match=message):
        train(model=module, clients=[FORMS[form](x, y)], loss=loss)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ((changed(X, (13, 2), 1e30), PRICES), r"inputs up to 1e\+30 \(sample 13\) and targets up to"),
        ((X, changed(PRICES, 13, 1e30)), r"inputs up to .* and targets up to 1e\+30 \(sample 13\)"),
    ],
    ids=["input", "target"],
)
def test_single_large_number_of_one_client_is_named(data, named):
    clients = [(X, PRICES), data, (X, PRICES)]
    with pytest.raises(InvalidInput, match=f"the loss is inf on samples of client 1, with {named}"):
        train(model=regression(), clients=clients, loss=mse_loss)


def test_loss_that_overflows_on_ordinary_inputs_is_named():
    def loss(prediction, y):
        return (prediction.square() - y).exp().mean()

    message = r"the loss is inf on samples of client 0, with inputs up to 1e\+03 .*, or check model and loss"
    with pytest.raises(InvalidInput, match=message):
        check(nn.Linear(5, 3), (torch.full((20, 5), 1000.0), X[:, :3]), loss)


class Logarithm(nn.Module):
    def forward(self, x):
        return x.sign() * x.abs().log1p()


@pytest.mark.parametrize(
    ("module", "scale"),
    [
        (nn.Sequential(Logarithm(), nn.Linear(5, 3)), 1e30),
        (nn.Linear(5, 3).double(), 1e30),
        (nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)), 1e15),
    ],
    ids=["logarithm", "double precision", "batch norm"],
)
def test_large_inputs_that_the_model_can_take_are_accepted(module, scale):
    check(module, (scale * X, LABELS))


def test_large_inputs_whose_sum_overflows_are_finite():
    samples = as_samples((torch.full((20, 5), 1e308, dtype=torch.float64), LABELS))
    assert NumberSearch().find_large(samples, "client 0") == {0}


# Initial weights


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("name", ["0.weight", "1.running_mean", "1.bias"])
def test_initial_weights_that_are_not_finite_are_named(name, value):
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model.state_dict()[name].view(-1)[1] = value
    with pytest.raises(InvalidInput, match=f"The initial model contains {value:g} in '{name}'; give it finite"):
        train(model=model)


def test_frozen_weights_may_be_infinite_but_not_nan():
    class Masked(nn.Linear):
        def __init__(self, mask):
            super().__init__(5, 3)
            self.mask = nn.Parameter(torch.tensor([0.0, 0.0, mask]), requires_grad=False)

        def forward(self, x):
            return super().forward(x) + self.mask

    fedtaco.train(Masked(-torch.inf), [(X, LABELS % 2)], rounds=1, local_steps=2)
    with pytest.raises(InvalidInput, match="contains nan in 'mask'"):
        check_weights(Masked(torch.nan))
