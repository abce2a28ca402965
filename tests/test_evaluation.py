"""Loss, accuracy and own metrics: what they are, on which samples, and in how many processes."""

from __future__ import annotations

import math

import pytest
import torch
from small_training import make_clients, train
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot
from torch.utils.data import Dataset

import fedtaco
from fedtaco import InvalidInput
from fedtaco.data import TensorSamples, as_samples
from fedtaco.evaluation import BATCH, Evaluator, count_classes, draw_samples
from fedtaco.models import FlatModel


def identity_model():
    """Return a model whose scores are its inputs."""
    module = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.eye(3))
    return FlatModel(module)


def evaluate(samples, workers=1, metrics=None, loss=cross_entropy):
    model = identity_model()
    return Evaluator(model, loss, workers=workers).evaluate(samples, model.vector.clone(), model.buffers, metrics)


# Targets


def test_regression_has_a_loss_but_no_accuracy():
    clients = [(torch.randn(20, 5), torch.randn(20, 1)) for _ in range(3)]
    result = fedtaco.train(
        nn.Linear(5, 1), clients, clients[0], method="fedavg", rounds=2, local_steps=2, loss=nn.MSELoss()
    )
    assert result.history.final_accuracy is None
    assert result.history.rounds[-1].balanced_accuracy is None
    assert result.history.rounds[-1].loss > 0


@pytest.mark.parametrize("outputs", [(), (1,)])
def test_single_logit_has_a_loss_but_no_accuracy(outputs):
    clients = [(torch.randn(20, 5), torch.arange(20) % 2) for _ in range(3)]
    model = nn.Sequential(nn.Linear(5, 1), nn.Flatten(0) if outputs == () else nn.Identity())

    def loss(prediction, y):
        return binary_cross_entropy_with_logits(prediction.flatten(), y.float())

    result = fedtaco.train(model, clients, clients[0], method="fedavg", rounds=1, local_steps=2, loss=loss)
    assert result.history.final_accuracy is None
    assert result.history.rounds[-1].loss > 0


def test_accuracy_of_sequences_counts_every_position():
    class Copy(nn.Module):
        """Predicts that each target equals its input."""

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return self.scale * one_hot(x, 3).float().movedim(-1, 1)

    x = torch.arange(40).reshape(8, 5) % 3
    y = torch.where(torch.arange(5) < 4, x, (x + 1) % 3)
    result = fedtaco.train(Copy(), [(x, y)], (x, y), method="fedavg", rounds=1, local_steps=1)
    assert result.history.final_accuracy == 0.8


def test_samples_without_a_label_have_a_loss_but_no_accuracy():
    clients = [(torch.randn(20, 5), torch.arange(20) % 3) for _ in range(3)]
    unlabelled = torch.randn(20, 5), torch.full((20,), -1)

    def loss(prediction, y):
        return prediction.square().mean()

    result = fedtaco.train(nn.Linear(5, 3), clients, unlabelled, method="fedavg", rounds=1, local_steps=1, loss=loss)
    assert result.history.final_accuracy is None
    assert result.history.rounds[-1].loss > 0


# Figures


def test_figures_are_those_computed_by_hand():
    """Predictions 0, 0, 0, 1 for the targets 0, 0, 1, 1; class 2 does not occur."""
    scores = 2.0 * one_hot(torch.tensor([0, 0, 0, 1]), 3)
    found = evaluate(TensorSamples(scores, torch.tensor([0, 0, 1, 1])))
    assert found.accuracy == 0.75
    assert found.class_accuracy == [1.0, 0.5]
    assert found.balanced_accuracy == 0.75
    right, wrong = math.log(math.exp(2) + 2) - 2, math.log(math.exp(2) + 2)
    assert found.loss == pytest.approx((3 * right + wrong) / 4)


def test_balanced_accuracy_counts_every_class_alike_and_skips_missing_ones():
    y = torch.tensor([0] * 8 + [2] * 2)
    found = evaluate(TensorSamples(one_hot(torch.zeros(10, dtype=torch.int64), 3).float(), y))
    assert (found.accuracy, found.class_accuracy, found.balanced_accuracy) == (0.8, [1.0, None, 0.0], 0.5)
    assert count_classes(TensorSamples(torch.zeros(10, 3), y)) == [8, 0, 2]


@pytest.mark.parametrize("kind", [TensorSamples, lambda x, y: as_samples(NoisyCopies(x, y))])
def test_classes_are_counted_in_samples_of_any_kind(kind):
    y = torch.tensor([1] * (BATCH + 40) + [0] * 100 + [-1] * 4)
    assert count_classes(kind(torch.zeros(len(y), 3), y)) == [100, BATCH + 40]
    assert count_classes(kind(torch.zeros(4, 3), torch.full((4,), -1))) == []
    assert count_classes(kind(torch.zeros(4, 3), torch.rand(4))) == []


def test_adult_is_mostly_of_one_class(real_data):
    counts = count_classes(fedtaco.data.load_dataset("adult", real_data("adult")).test)
    assert sum(counts) == 16281
    assert max(counts) / sum(counts) == pytest.approx(0.7638, abs=1e-4)


# Several processes


class NoisyCopies(Dataset):
    """Samples with fresh noise."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index] + torch.randn(3), self.y[index]


def many_samples(count=5 * BATCH + 17):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, generator=generator), torch.randint(0, 3, (count,), generator=generator)


@pytest.mark.parametrize("kind", [TensorSamples, lambda x, y: as_samples(NoisyCopies(x, y))])
def test_result_does_not_depend_on_the_number_of_processes(kind, monkeypatch):
    monkeypatch.setattr("fedtaco.evaluation.MIN_SECONDS_TO_FORK", 0.0)
    samples, computed_here = kind(*many_samples()), []

    def loss(prediction, y):
        computed_here.append(len(y))
        return cross_entropy(prediction, y)

    metrics = {"sum": lambda predictions, targets: predictions.double().sum() + targets.sum()}
    first = evaluate(samples, 1, metrics, loss)
    assert computed_here == [BATCH] * 5 + [17]
    for workers in (2, 3, 9):
        torch.rand(5)
        computed_here.clear()
        assert evaluate(samples, workers, metrics, loss) == first
        assert len(computed_here) < 6


def test_short_evaluations_start_no_process(monkeypatch):
    monkeypatch.setattr("fedtaco.processes._fork_share", None)
    assert evaluate(TensorSamples(*many_samples()), workers=4).accuracy is not None


# A part of the test set


def test_part_of_the_test_set_is_fixed_by_the_seed():
    samples = TensorSamples(*many_samples(50))
    parts = [draw_samples(samples, 20, seed).batch(torch.arange(20)) for seed in (3, 3, 4)]
    assert torch.equal(parts[0][0], parts[1][0])
    assert not torch.equal(parts[0][0], parts[2][0])
    assert len({tuple(row.tolist()) for row in parts[0][0]}) == 20
    assert draw_samples(samples, 50, 0) is samples
    assert draw_samples(samples, None, 0) is samples


def test_eval_samples_evaluates_on_that_part():
    test = make_clients(1)[0]
    result = train(eval_samples=12, seed=3)
    part = draw_samples(as_samples(test), 12, seed=3)
    x, y = part.batch(torch.arange(12))
    assert result.history.final_accuracy == float((result.model(x).argmax(1) == y).sum()) / 12
    assert result.history[-1].loss == pytest.approx(cross_entropy(result.model(x), y).item())


# Own metrics


def test_own_metrics_see_the_whole_test_set():
    x, y = many_samples()
    seen = []

    def margin(predictions, targets):
        seen.append((predictions, targets))
        return (predictions.max(1).values - predictions[torch.arange(len(targets)), targets]).mean()

    found = evaluate(TensorSamples(x, y), metrics={"margin": margin})
    ((predictions, targets),) = seen
    assert torch.equal(predictions, x)
    assert torch.equal(targets, y)
    expected = (x.max(1).values - x[torch.arange(len(y)), y]).mean()
    assert found.metrics == {"margin": float(expected)}


def test_own_metrics_are_recorded_in_evaluated_rounds():
    def share_of_zeros(predictions, targets):
        assert len(predictions) == len(targets) == 30
        return (predictions.argmax(1) == 0).double().mean()

    history = train(metrics={"zeros": share_of_zeros}, eval_every=2).history
    assert [sorted(record.metrics) for record in history] == [[], ["zeros"], ["zeros"]]
    assert history.column("zeros")[0] is None
    assert history.column("zeros")[1] == history[1].metrics["zeros"]
    assert train().history[0].metrics == {}


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (lambda predictions, targets: 1 / 0, "it raised ZeroDivisionError: division by zero"),
        (lambda predictions, targets: math.nan, "it returned nan"),
        (lambda predictions, targets: torch.tensor(math.inf), "it returned inf"),
        (lambda predictions, targets: None, "it raised TypeError: "),
        (lambda predictions, targets: predictions, "it raised ValueError: "),
    ],
    ids=["raises", "nan", "infinite", "none", "tensor"],
)
def test_metric_that_fails_is_null_and_the_run_goes_on(metric, reason):
    with pytest.warns(RuntimeWarning, match=f"The metric 'own' is not recorded: {reason}"):
        history = train(metrics={"own": metric, "good": lambda predictions, targets: 0.5}).history
    assert [record.metrics for record in history] == [{"own": None, "good": 0.5}] * 3


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"f1": 0.5}, r"metrics\['f1'\] is 0.5; it must be a function of predictions and targets"),
        ({"": len}, "metrics has the name ''; a name must be printable text"),
        ({3: len}, "metrics has the name 3"),
        ({"a\x1bb": len}, r"metrics has the name 'a\\x1bb'"),
    ],
)
def test_invalid_metrics_are_refused_before_training(metrics, message):
    with pytest.raises(InvalidInput, match=message):
        train(metrics=metrics)
