"""The final model on each client's own samples, before and after fine-tuning."""

from __future__ import annotations

import json

import pytest
import torch
from run_helpers import assert_same_result
from small_training import make_clients, train
from torch import nn
from torch.nn.functional import cross_entropy

import fedtaco
from fedtaco import EarlyStopping, InvalidInput, RunStopped
from fedtaco.data import batch_plan, load_dataset, partition_dataset
from fedtaco.data.datasets import hold_out
from fedtaco.randomness import generator
from fedtaco.records import RunFolder

SETTINGS = {"dataset": "digits", "clients": 6, "rounds": 3, "local_steps": 4, "batch_size": 16, "validation": 0.2}


class Linear(nn.Linear):
    """A model whose initial weights depend on the seed alone."""

    def __init__(self):
        super().__init__(5, 3)


def scores(model, x, y):
    """Return accuracy and loss of a model, computed directly."""
    with torch.no_grad():
        output = model(x)
    return float((output.argmax(1) == y).double().mean()), cross_entropy(output, y).item()


def own_tests(count=4):
    return [(x[:10], y[:10]) for x, y in reversed(make_clients(count))]


def assert_figures(accuracy, loss, model, samples):
    expected_accuracy, expected_loss = scores(model, *samples)
    assert accuracy == expected_accuracy
    assert loss == pytest.approx(expected_loss, rel=1e-5)


def fine_tune_by_hand(model, samples, client, *, rounds, steps, batch_size, local_lr, seed=0):
    """Take steps of plain SGD on the batches of a round after the last one."""
    plan = batch_plan(generator(seed, "batches", client, rounds + 1), len(samples[1]), steps, batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=local_lr)
    for indices in plan:
        optimizer.zero_grad()
        cross_entropy(model(samples[0][indices]), samples[1][indices]).backward()
        optimizer.step()
    return model


def test_figures_are_those_of_the_returned_model():
    result = train(client_tests=own_tests())
    assert [one.client for one in result.client_evaluations] == [0, 1, 2, 3]
    assert len({one.loss for one in result.client_evaluations}) == 4
    for one, samples in zip(result.client_evaluations, own_tests(), strict=True):
        assert one.samples == 10
        assert_figures(one.accuracy, one.loss, result.model, samples)
        assert (one.tuned_accuracy, one.tuned_loss) == (None, None)


@pytest.mark.parametrize("engine", ["serial", "pool", "batched"])
@pytest.mark.parametrize("participation", [1.0, 0.25])
def test_fine_tuning_is_plain_sgd_on_the_clients_training_samples(engine, participation):
    """Whatever the method, and however many fine-tuned models fit into memory at once."""
    settings = {"engine": engine, "method": "scaffold", "batch_size": 8, "participation": participation}
    result = train(client_tests=own_tests(), fine_tune_steps=5, **settings)
    for one, samples, own in zip(result.client_evaluations, own_tests(), make_clients(), strict=True):
        assert_figures(one.accuracy, one.loss, result.model, samples)
        model = nn.Linear(5, 3)
        model.load_state_dict(result.model.state_dict())
        fine_tune_by_hand(model, own, one.client, rounds=3, steps=5, batch_size=8, local_lr=0.1)
        assert_figures(one.tuned_accuracy, one.tuned_loss, model, samples)
        assert one.tuned_loss != one.loss


def test_engines_agree_and_training_is_not_affected():
    plain = train(engine="serial", model=nn.Linear(5, 3))
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
    results = [
        train(model=model, client_tests=own_tests(), fine_tune_steps=3, engine=engine) for engine in ("serial", "pool")
    ]
    assert_same_result(*results)
    assert results[0].client_evaluations
    assert plain.client_evaluations == []
    without = train(model=model, engine="serial")
    assert without.history.client_table()[-1]["norm"] == results[0].history.client_table()[-1]["norm"]


def test_clients_without_a_test_set_are_left_out():
    tests = own_tests()
    tests[2] = None
    assert [one.client for one in train(client_tests=tests, fine_tune_steps=1).client_evaluations] == [0, 1, 3]


def test_fine_tuning_that_diverges_has_no_figures():
    def loss(prediction, y):
        return prediction.square().mean()

    settings = {"rounds": 1, "local_lr": 10.0, "loss": loss, "fine_tune_steps": 300}
    result = train(method=Still, client_tests=own_tests(), **settings)
    assert len(result.client_evaluations) == 4
    assert all(one.tuned_accuracy is None and one.tuned_loss is None for one in result.client_evaluations)
    assert all(one.loss is not None for one in result.client_evaluations)


class Still(fedtaco.Method):
    """Does not move, so that only fine-tuning diverges."""

    name = "still"
    summary = "does not train"

    def direction(self, x, local):
        return torch.zeros_like(local.gradient(x))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"client_tests": own_tests(3)}, "client_tests lists 3 test sets for 4 clients; give one for each"),
        (
            {"client_tests": [*own_tests(3), (torch.empty(0, 5), torch.empty(0))]},
            r"client_tests\[3\] has no samples",
        ),
        ({"client_tests": [*own_tests(3), 5]}, "Cannot read samples from int"),
        (
            {"client_tests": [(torch.rand(4, 7), torch.zeros(4))] * 4},
            r"samples of the test set of client 0 \(inputs \(4, 7\)",
        ),
        ({"fine_tune_steps": 3}, r"fine_tune_steps has no effect without samples of each client.*\(client_tests\)"),
        ({"fine_tune_steps": -1, "client_tests": own_tests()}, "fine_tune_steps is -1; it must be a whole number"),
    ],
)
def test_invalid_test_sets_are_explained(changes, message):
    with pytest.raises(InvalidInput, match=message):
        train(**changes)


# Held-out samples


def held_out_samples(seed=0):
    """Return the training and held-out samples of each client of a run with ``SETTINGS``."""
    data = load_dataset("digits")
    parts = partition_dataset(data, "groups", SETTINGS["clients"], seed).indices
    remaining, held_out = hold_out(parts, SETTINGS["validation"], seed)
    return [
        tuple(data.train.subset(part).batch(torch.arange(len(part))) for part in pair)
        for pair in zip(remaining, held_out, strict=True)
    ]


def test_held_out_samples_of_each_client_are_evaluated_recorded_and_loaded(tmp_path):
    result = fedtaco.run("taco", out=tmp_path, fine_tune_steps=2, **SETTINGS)
    for one, (own, held_out) in zip(result.client_evaluations, held_out_samples(), strict=True):
        assert one.samples == len(held_out[1])
        assert_figures(one.accuracy, one.loss, result.model, held_out)
        model = fedtaco.load(tmp_path).model
        fine_tune_by_hand(model, own, one.client, rounds=3, steps=2, batch_size=16, local_lr=0.05)
        assert_figures(one.tuned_accuracy, one.tuned_loss, model, held_out)
    assert fedtaco.load(tmp_path).client_evaluations == result.client_evaluations
    assert RunFolder(tmp_path).client_evaluations() == result.client_evaluations
    total = sum(one.samples for one in result.client_evaluations)
    mean = sum(one.samples * one.accuracy for one in result.client_evaluations) / total
    assert mean == pytest.approx(result.history[-1].validation_accuracy)


def test_nothing_is_evaluated_by_client_without_held_out_samples(tmp_path):
    result = fedtaco.run("taco", out=tmp_path, **{**SETTINGS, "validation": 0.0})
    assert result.client_evaluations == fedtaco.load(tmp_path).client_evaluations == []
    assert not (tmp_path / "client_evaluations.jsonl").exists()


def test_fine_tuning_without_held_out_samples_is_refused():
    with pytest.raises(InvalidInput, match=r"fine_tune_steps has no effect without samples.*\(validation\)"):
        fedtaco.run("taco", fine_tune_steps=2, **{**SETTINGS, "validation": 0.0})


def test_misbehaving_clients_are_left_out(tmp_path):
    settings = {**SETTINGS, "freeloaders": 2, "behaviour": "label-flip"}
    result = fedtaco.run("fedavg", out=tmp_path, **settings)
    honest = [client for client in range(6) if client not in RunFolder(tmp_path).partition().freeloaders]
    assert [one.client for one in result.client_evaluations] == honest


def test_finished_run_is_not_evaluated_again(tmp_path, monkeypatch):
    first = fedtaco.run("taco", out=tmp_path, fine_tune_steps=2, **SETTINGS)
    monkeypatch.setattr("fedtaco.evaluation.Evaluator.evaluate", None)
    assert_same_result(first, fedtaco.run("taco", out=tmp_path, resume=True, fine_tune_steps=2, **SETTINGS))


def test_run_killed_before_its_summary_is_evaluated_when_it_is_resumed(tmp_path):
    first = fedtaco.run("taco", out=tmp_path, fine_tune_steps=2, **SETTINGS)
    (tmp_path / "summary.json").unlink()
    (tmp_path / "client_evaluations.jsonl").write_text("half a li")
    assert RunFolder(tmp_path).client_evaluations() == []
    assert_same_result(first, fedtaco.run("taco", out=tmp_path, resume=True, fine_tune_steps=2, **SETTINGS))


def test_run_that_a_callback_ends_is_evaluated_by_client(tmp_path):
    settings = {"client_tests": own_tests(), "fine_tune_steps": 2, "rounds": 6, "out": tmp_path}
    ended = train(model=Linear, callbacks=[EarlyStopping(patience=2, min_delta=1.0)], **settings)
    assert ended.summary["ended_early"]
    assert len(ended.history) == 3
    assert [one.client for one in ended.client_evaluations] == [0, 1, 2, 3]
    for one, samples in zip(ended.client_evaluations, own_tests(), strict=True):
        assert_figures(one.accuracy, one.loss, ended.model, samples)
        assert one.tuned_loss is not None
    assert fedtaco.load(tmp_path, Linear).client_evaluations == ended.client_evaluations
    resumed = train(model=Linear, resume=True, **settings)
    assert_same_result(resumed, train(model=Linear, **{**settings, "out": None}))
    assert resumed.client_evaluations != ended.client_evaluations


def test_run_that_diverges_is_not_evaluated_by_client(tmp_path):
    with pytest.raises(RunStopped):
        train(model=Linear, client_tests=own_tests(), local_lr=1e30, out=tmp_path)
    assert fedtaco.load(tmp_path, Linear).client_evaluations == []


# Stored evaluations


@pytest.mark.parametrize("damage", ["changed", "shortened", "extended", "missing"])
def test_damaged_evaluations_are_refused(damage, tmp_path):
    fedtaco.run("fedavg", out=tmp_path, **SETTINGS)
    path = tmp_path / "client_evaluations.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    row = {**json.loads(lines[0]), "accuracy": 1.0}
    damaged = {"changed": [json.dumps(row) + "\n", *lines[1:]], "shortened": lines[:-1], "extended": [*lines, lines[0]]}
    if damage == "missing":
        path.unlink()
    else:
        path.write_text("".join(damaged[damage]))
    with pytest.raises(InvalidInput, match=r"client_evaluations.jsonl is damaged: it (has changed|is missing)"):
        fedtaco.load(tmp_path)
