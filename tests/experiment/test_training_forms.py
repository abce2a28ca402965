"""fedtaco.train with data in every form gives the numbers of the same data as pairs of tensors."""

from __future__ import annotations

import datasets
import pandas as pd
import pytest
import torch
from run_helpers import assert_same_model, assert_same_result
from small_text import TextClassifier, text_clients
from small_training import Pairs, make_clients
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

import fedtaco
from fedtaco import InvalidInput

SETTINGS = {"rounds": 4, "local_steps": 5, "local_lr": 0.1, "batch_size": 8, "method": "taco"}
CLIENTS = [(x, y) for x, y in make_clients(5)]


def frame_of(x):
    return pd.DataFrame(x.double().numpy(), columns=[*"abcde"])


def halves(x, y):
    return ConcatDataset([Subset(Pairs(x, y), range(12)), Subset(Pairs(x, y), range(12, len(y)))])


FORMS = {
    "arrays": lambda x, y: (x.numpy(), y.numpy()),
    "float64 arrays": lambda x, y: (x.double().numpy(), y.numpy()),
    "lists": lambda x, y: (x.tolist(), y.tolist()),
    "frame and column": lambda x, y: (frame_of(x).assign(kind=y.numpy()), "kind"),
    "frame and series": lambda x, y: (frame_of(x), pd.Series(y.numpy())),
    "TensorDataset": TensorDataset,
    "Dataset": Pairs,
    "Subset": lambda x, y: Subset(Pairs(x.flip(0), y.flip(0)), list(range(len(y)))[::-1]),
    "ConcatDataset": halves,
    "DataLoader": lambda x, y: DataLoader(Pairs(x, y), batch_size=3, shuffle=True, num_workers=2),
    "DataLoader with a collate function": lambda x, y: DataLoader(Pairs(x, y), collate_fn=collate),
    "hub dataset": lambda x, y: datasets.Dataset.from_dict({"x": x.tolist(), "label": y.tolist()}),
}


def collate(samples):
    return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])


def linear(outputs=3):
    module = nn.Linear(5, outputs)
    nn.init.zeros_(module.bias)
    nn.init.constant_(module.weight, 0.1)
    return module


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_numbers_of_tensors(form):
    expected = fedtaco.train(linear(), CLIENTS, CLIENTS[0], engine="serial", **SETTINGS)
    clients = [FORMS[form](x, y) for x, y in CLIENTS]
    for engine in ("serial", "pool"):
        assert_same_result(expected, fedtaco.train(linear(), clients, clients[0], engine=engine, **SETTINGS))
    batched = fedtaco.train(linear(), clients, clients[0], engine="batched", **SETTINGS)
    assert batched.history.column("loss") == pytest.approx(expected.history.column("loss"), rel=1e-4)
    assert expected.history.rounds[-1].loss < expected.history.rounds[0].loss


TEXT_FORMS = {
    "Dataset and key": lambda data: (data, "labels"),
    "columns": lambda data: data.columns(),
    "columns and targets": lambda data: ({k: v for k, v in data.columns().items() if k != "labels"}, data.labels),
    "columns in a tuple": lambda data: ((data.codes, data.masks), data.labels.tolist()),
    "DataLoader": lambda data: DataLoader(data, batch_size=5),
    "hub dataset": lambda data: datasets.Dataset.from_dict({k: v.tolist() for k, v in data.columns().items()}),
}


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_every_form_of_several_inputs_gives_the_same_numbers(form):
    expected = fedtaco.train(TextClassifier(), text_clients(), text_clients(1)[0], **SETTINGS)
    clients = [TEXT_FORMS[form](data) for data in text_clients()]
    assert_same_result(expected, fedtaco.train(TextClassifier(), clients, clients[0], **SETTINGS))


def test_forms_may_be_mixed():
    clients = [form(x, y) for (x, y), form in zip(CLIENTS, list(FORMS.values())[::2], strict=False)]
    expected = fedtaco.train(linear(), CLIENTS, **SETTINGS, engine="serial")
    assert_same_model(expected.model, fedtaco.train(linear(), clients, **SETTINGS, engine="serial").model)


@pytest.mark.parametrize("engine", ["serial", "batched"])
@pytest.mark.parametrize(
    ("outputs", "loss", "target"),
    [
        (1, mse_loss, lambda x: x[:, :1] * 2),
        (2, nn.L1Loss(), lambda x: x[:, :2].double().numpy()),
        (3, binary_cross_entropy_with_logits, lambda x: (x[:, :3] > 1).float()),
        (1, mse_loss, lambda x: pd.DataFrame({"value": x[:, 1].double().numpy()})),
    ],
    ids=["regression", "two values", "multi-label", "frame"],
)
def test_targets_that_are_not_classes_have_a_loss_but_no_accuracy(outputs, loss, target, engine):
    clients = [(x, target(x)) for x, _ in CLIENTS]
    result = fedtaco.train(linear(outputs), clients, clients[0], loss=loss, engine=engine, **SETTINGS)
    assert result.history.column("accuracy") == [None] * 4
    assert result.history.rounds[-1].loss < 0.9 * result.history.rounds[0].loss


def test_error_in_the_data_of_a_client_names_the_client():
    clients = [(frame_of(x), y) for x, y in CLIENTS]
    clients[3] = (clients[3][0].assign(name="Ada"), clients[3][1])
    with pytest.raises(InvalidInput, match="Client 3: The column 'name' has the type"):
        fedtaco.train(linear(), clients, **SETTINGS)
    with pytest.raises(InvalidInput, match="The test set: A DataFrame does not say which column is the target"):
        fedtaco.train(linear(), CLIENTS, clients[0][0], **SETTINGS)
