"""Samples that do not fit the model are refused before training, with a sentence that names their owner."""

from __future__ import annotations

import pytest
import torch
from small_training import make_clients, train
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, l1_loss, mse_loss, poisson_nll_loss
from torch.utils.data import Dataset

import fedtaco
from fedtaco import InvalidInput
from fedtaco.data import as_samples
from fedtaco.models import FlatModel
from fedtaco.sample_checks import check_samples

X = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(20) % 3


def check(module, data, loss=cross_entropy):
    check_samples(FlatModel(module), {"client 0": as_samples(data)}, loss)


def with_label(label, index=17):
    labels = LABELS.clone()
    labels[index] = label
    return labels


class Pictures(Dataset):
    """Samples that are not in memory, with known labels."""

    def __init__(self, targets, inputs=X):
        self.inputs, self.targets = inputs, targets.tolist()

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]


@pytest.mark.parametrize("form", [lambda x, y: (x, y), lambda x, y: Pictures(y, x)], ids=["tensors", "Dataset"])
@pytest.mark.parametrize(("label", "labels"), [(3, "0 to 3"), (-1, "-1 to 2")])
def test_single_label_outside_of_the_range_is_found(form, label, labels):
    clients = [*make_clients(2), form(X, with_label(label))]
    with pytest.raises(InvalidInput, match=f"client 2: labels are from {labels}, but the model has 3 outputs, for the"):
        train(clients=clients)


def test_scores_with_too_many_dimensions_are_explained():
    images = torch.randn(9, 1, 5, 5)
    with pytest.raises(InvalidInput, match=r"returns an array of shape \(n, 1, 5, 3\), but there is one label per"):
        train(clients=[(images, torch.arange(9) % 3)])


@pytest.mark.parametrize("loss", [cross_entropy, nn.CrossEntropyLoss(), nn.CrossEntropyLoss(ignore_index=7)])
def test_labels_that_the_loss_ignores_are_accepted(loss):
    check(nn.Linear(5, 3), (X, with_label(getattr(loss, "ignore_index", -100))), loss)


def test_label_outside_of_the_range_is_found_for_losses_of_ones_own():
    def loss(scores, y):
        return cross_entropy(scores, y, label_smoothing=0.1)

    with pytest.raises(InvalidInput, match=r"samples of client 0 \(inputs \(5, 5\).*: Target 3 is out of bounds"):
        check(nn.Linear(5, 3), (X, with_label(3)), loss)


def test_client_with_another_input_shape_is_named():
    with pytest.raises(InvalidInput, match=r"samples of client 2 \(inputs \(4, 7\) torch\.float32, targets \(4,\)"):
        train(clients=[*make_clients(2), (torch.randn(20, 7), LABELS)])


def test_shapes_may_differ_if_the_model_accepts_them():
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
    clients = [(torch.randn(20, 2, 3), LABELS), (torch.randn(20, 6), LABELS), (torch.randn(20, 6), LABELS)]
    settings = {"rounds": 2, "local_steps": 4, "local_lr": 0.1}
    serial, *others = (
        fedtaco.train(model, clients, clients[0], engine=engine, **settings) for engine in ("serial", "batched", "auto")
    )
    for other in others:
        assert other.history.column("loss") == serial.history.column("loss")


LOSSES = [mse_loss, l1_loss, nn.SmoothL1Loss(), poisson_nll_loss, lambda p, y: (p - y).abs().mean()]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("module", "y", "shapes"),
    [
        (nn.Linear(5, 1), LABELS, r"\(n, 1\) and targets \(n,\)"),
        (nn.Linear(5, 1), X[:, 0], r"\(n, 1\) and targets \(n,\)"),
        (nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)), X[:, :1], r"\(n,\) and targets \(n, 1\)"),
    ],
    ids=["integer targets", "targets without a dimension", "predictions without a dimension"],
)
def test_loss_that_would_broadcast_is_refused(loss, module, y, shapes):
    with pytest.raises(InvalidInput, match=f"predictions have the shape {shapes}, so that the loss compares every"):
        check(module, (X, y), loss)
    check(module, (X, y.reshape(*module(X).shape)), loss)


@pytest.mark.parametrize("reshape", [torch.flatten, lambda p: p[:, 0], lambda p: p.squeeze(1)])
def test_loss_that_reshapes_predictions_is_accepted(reshape):
    check(nn.Linear(5, 1), (X, X[:, 0]), lambda p, y: mse_loss(reshape(p), y))


@pytest.mark.parametrize(
    ("y", "loss", "message"),
    [
        (
            LABELS.float(),
            cross_entropy,
            r"targets are torch.float32 of shape \(n,\); cross entropy needs integer labels",
        ),
        (LABELS[:, None], cross_entropy, r"targets have the shape \(n, 1\); cross entropy needs one label per sample"),
        (torch.zeros(20, 3, dtype=torch.int64), binary_cross_entropy_with_logits, "can't be cast"),
        (torch.zeros(20, 2), binary_cross_entropy_with_logits, "Target size .* must be the same as input size"),
        (LABELS, nn.CrossEntropyLoss(reduction="none"), "only for scalar outputs"),
    ],
    ids=["float labels", "column of labels", "integers for probabilities", "too few classes", "loss per sample"],
)
def test_common_mistakes_are_explained(y, loss, message):
    with pytest.raises(InvalidInput, match=f"Model and loss do not work on the samples of client 0.*{message}"):
        check(nn.Linear(5, 3), (X, y), loss)


def test_soft_labels_are_accepted():
    check(nn.Linear(5, 3), (X, X[:, :3].softmax(1)))


def test_samples_that_cannot_be_read_are_explained():
    class Ragged(Pictures):
        def __getitem__(self, index):
            return torch.zeros(index + 1), 0

    with pytest.raises(InvalidInput, match="client 0 cannot be read: stack expects each tensor to be equal size"):
        check(nn.Linear(5, 3), Ragged(LABELS))


def test_the_test_set_is_checked_too():
    with pytest.raises(InvalidInput, match="samples of the test set: labels are from 0 to 9"):
        fedtaco.train(nn.Linear(5, 3), make_clients(), (X, with_label(9)), rounds=1, local_steps=1)
    with pytest.raises(InvalidInput, match="The test set has no samples"):
        fedtaco.train(nn.Linear(5, 3), make_clients(), (X[:0], LABELS[:0]), rounds=1, local_steps=1)


def test_model_is_called_once_if_all_clients_are_alike():
    calls = []

    class Counting(nn.Linear):
        def forward(self, x):
            calls.append(len(x))
            return super().forward(x)

    samples = {f"client {number}": as_samples((X + number, LABELS)) for number in range(50)}
    check_samples(FlatModel(Counting(5, 3)), samples, cross_entropy)
    assert len(calls) == 1


def test_random_draws_of_the_user_are_not_affected():
    class Drawing(Pictures):
        def __getitem__(self, index):
            return self.inputs[index] + torch.randn(5), 0

    model = nn.Linear(5, 3)
    state = torch.get_rng_state()
    check(model, Drawing(LABELS))
    assert torch.equal(torch.get_rng_state(), state)


def test_trial_does_not_change_the_model():
    flat = FlatModel(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    before = {name: tensor.clone() for name, tensor in flat.module.state_dict().items()}
    check_samples(flat, {"client 0": as_samples((X, LABELS))}, cross_entropy)
    assert all(torch.equal(tensor, before[name]) for name, tensor in flat.module.state_dict().items())


def test_single_sample_with_batch_norm_is_accepted():
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    train(model=model, clients=[(X[:1], LABELS[:1]), (X, LABELS)])


def test_samples_without_any_label_are_accepted():
    check(nn.Linear(5, 3), (X, torch.full((20,), -100)))


def test_samples_are_read_with_one_thread(tmp_path):
    """Before, in and after the rounds, so that results do not depend on the machine and many clients cost little."""
    used = []

    class Observed(Pictures):
        def __getitem__(self, index):
            used.append(torch.get_num_threads())
            return super().__getitem__(index)

    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        samples = [Observed(LABELS) for _ in range(2)]
        settings = {"rounds": 1, "local_steps": 1, "engine": "batched", "out": tmp_path}
        fedtaco.train(nn.Linear(5, 3), samples, samples[0], client_tests=samples, **settings)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert set(used) == {1}
