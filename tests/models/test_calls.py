"""Models with several inputs, and with outputs that contain logits, train in every engine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from run_helpers import assert_same_result
from small_text import TextClassifier, text_clients
from small_training import make_clients, train
from torch import nn

import fedtaco
from fedtaco.data import as_samples
from fedtaco.models import FlatModel, stack_model
from fedtaco.models.calls import call_arguments, logits_of

SETTINGS = {"rounds": 8, "local_steps": 5, "local_lr": 1.0, "batch_size": 8}


def train_text(**options):
    clients = options.pop("clients", None) or text_clients()
    return fedtaco.train(TextClassifier(), clients, clients[0], **{**SETTINGS, **options})


@pytest.mark.parametrize("method", ["taco", "scaffold", "stem"])
def test_engines_agree_on_inputs_by_name(method):
    serial, pool, batched = (train_text(method=method, engine=engine) for engine in ("serial", "pool", "batched"))
    assert_same_result(serial, pool)
    assert serial.history.rounds[-1].loss < 0.9 * serial.history.rounds[0].loss
    assert serial.history.final_accuracy > 0.7
    for name, tensor in serial.model.state_dict().items():
        torch.testing.assert_close(batched.model.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)


def test_inputs_by_name_are_stacked_by_torch_func():
    batch = as_samples(text_clients(1)[0]).batch(torch.arange(8))
    assert not stack_model(FlatModel(TextClassifier()), nn.functional.cross_entropy, batch, True).by_hand


class Renamed(nn.Module):
    """A linear model that takes its inputs in one of several ways and wraps its output."""

    def __init__(self, wrap):
        super().__init__()
        self.layer, self.wrap = nn.Linear(5, 3), wrap
        with torch.no_grad():
            self.layer.weight.copy_(torch.linspace(-0.5, 0.5, 15).view(3, 5))
            self.layer.bias.zero_()

    def forward(self, first, second=None):
        x = first if second is None else torch.cat([first, second], 1)
        return self.wrap(self.layer(x))


WRAPS = {
    "tensor": lambda scores: scores,
    "mapping": lambda scores: {"loss": None, "logits": scores},
    "object": lambda scores: SimpleNamespace(logits=scores, hidden_states=None),
}
STRUCTURES = {
    "tensor": lambda x: x,
    "tuple of one": lambda x: (x,),
    "tuple": lambda x: (x[:, :2], x[:, 2:]),
    "mapping": lambda x: {"second": x[:, 2:], "first": x[:, :2]},
}


@pytest.mark.parametrize("engine", ["serial", "pool", "batched"])
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("wrap", WRAPS)
def test_results_depend_neither_on_the_structure_of_inputs_nor_on_that_of_outputs(wrap, structure, engine):
    def trained(wrap, structure):
        clients = [(STRUCTURES[structure](x), y) for x, y in make_clients()]
        model = Renamed(WRAPS[wrap])
        return fedtaco.train(model, clients, clients[0], rounds=3, local_steps=4, local_lr=0.1, engine=engine)

    assert_same_result(trained("tensor", "tensor"), trained(wrap, structure))


def test_floating_point_inputs_are_converted_to_the_models_dtype_and_others_are_not():
    model = FlatModel(nn.Linear(2, 2))
    x, _ = model.move_batch(({"a": torch.ones(3, dtype=torch.float64), "b": torch.arange(3)}, torch.arange(3)))
    assert (x["a"].dtype, x["b"].dtype) == (torch.float32, torch.int64)


def test_inputs_are_moved_to_the_device_of_the_model():
    model = FlatModel(nn.Linear(2, 2), torch.device("meta"))
    x, y = model.move_batch(((torch.ones(3), torch.arange(3)), torch.arange(3)))
    assert {tensor.device.type for tensor in (*x, y)} == {"meta"}


def test_arguments_of_a_call():
    x = torch.ones(1)
    assert call_arguments(x) == ((x,), {})
    assert call_arguments((x, x)) == ((x, x), {})
    assert call_arguments({"a": x}) == ((), {"a": x})


def test_outputs_without_logits_are_passed_to_the_loss_unchanged():
    x = torch.ones(1)
    assert logits_of((x, x)) == (x, x)
    assert logits_of({"scores": x}) == {"scores": x}


@pytest.mark.parametrize("engine", ["serial", "batched"])
def test_loss_may_take_outputs_of_its_own_kind(engine):
    def loss(output, y):
        scores, penalty = output
        return nn.functional.cross_entropy(scores, y) + penalty

    model = Renamed(lambda scores: (scores, scores.square().mean()))
    result = train(model=model, loss=loss, engine=engine)
    assert result.history.final_accuracy is None
    assert result.history.rounds[-1].loss < result.history.rounds[0].loss
