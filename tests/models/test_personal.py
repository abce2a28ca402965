"""Personal layers: which parameters and buffers patterns choose, and how a model stores them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco import InvalidInput
from fedtaco.models import FlatModel, Unstackable, build_model, split_memory, stack_model
from fedtaco.models.personal import personal_names

BATCH = (torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]))


def small_model():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    model[0].weight.requires_grad_(False)
    return model


# Patterns


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["3.*"], {"3.weight", "3.bias"}),
        (["3.bias", "0.*"], {"3.bias", "0.bias"}),
        (["1.*"], {"1.weight", "1.bias", "1.running_mean", "1.running_var"}),
        (["*running*"], {"1.running_mean", "1.running_var"}),
        (["[01].bias"], {"0.bias", "1.bias"}),
        ([], set()),
    ],
)
def test_patterns_match_trainable_parameters_and_floating_point_buffers(patterns, names):
    assert personal_names(small_model(), patterns) == names


@pytest.mark.parametrize("pattern", ["bn*", "0.weight", "1.num_batches_tracked", "3", "3.WEIGHT", "3.weight "])
def test_a_pattern_that_matches_nothing_is_refused(pattern):
    with pytest.raises(InvalidInput) as error:
        FlatModel(small_model(), personal=["3.*", pattern])
    assert str(error.value) == (
        f"personal is '{pattern.strip()}', which matches no trainable parameter or floating-point buffer of the model; "
        "it has 0.bias, 1.weight, 1.bias, 3.weight, 3.bias, 1.running_mean and 1 more."
    )


@pytest.mark.parametrize("patterns", [["*"], ["0.bias", "1.*", "3.weight", "3.bias"]])
def test_a_model_without_anything_to_share_is_refused(patterns):
    with pytest.raises(InvalidInput, match=r"every trainable parameter \(0.bias, 1.weight, .*; leave at least one"):
        FlatModel(small_model(), personal=patterns)


@pytest.mark.parametrize(
    ("spec", "shape"), [("mlp", (8, 8)), ("cnn", (1, 28, 28)), ("resnet18", (3, 8, 8)), ("lstm", (5,))]
)
def test_the_last_layer_of_every_model_by_name_is_its_head(spec, shape):
    module = build_model(spec, shape, 10, seed=0)
    assert personal_names(module, ["head.*"]) == {"head.weight", "head.bias"}
    assert list(dict(module.named_parameters()))[-2:] == ["head.weight", "head.bias"]


@pytest.mark.parametrize("norm", ["groupnorm", "batchnorm"])
def test_one_pattern_matches_all_norm_layers_of_resnet18(norm):
    module = build_model(f"resnet18:{norm}", (3, 8, 8), 10, seed=0)
    layers = [layer for layer in module.modules() if isinstance(layer, nn.GroupNorm | nn.BatchNorm2d)]
    assert len(layers) == 20
    model = FlatModel(module, personal=["*norm*"])
    assert model.personal.numel() == sum(p.numel() for layer in layers for p in layer.parameters())
    assert model.buffers.numel() == 0


# The division of a model


def test_without_patterns_the_vector_holds_everything_in_the_order_of_the_module():
    module = small_model()
    model = FlatModel(module)
    trainable = [p.detach().reshape(-1) for p in module.parameters() if p.requires_grad]
    assert torch.equal(model.vector, torch.cat(trainable))
    assert model.buffers.tolist() == [0.0] * 5 + [1.0] * 5
    assert model.personal.numel() == model.personal_buffers.numel() == 0
    assert model.personal_memory() == model.initial_personal == {}


def test_shared_and_personal_parts_are_views_of_the_module():
    model = FlatModel(small_model(), personal=["1.*"])
    model.vector.fill_(1.0)
    model.personal.fill_(2.0)
    model.personal_buffers.fill_(3.0)
    values = {name: set(tensor.flatten().tolist()) for name, tensor in model.module.state_dict().items()}
    assert values["0.bias"] == values["3.weight"] == values["3.bias"] == {1.0}
    assert values["1.weight"] == values["1.bias"] == {2.0}
    assert values["1.running_mean"] == values["1.running_var"] == {3.0}
    assert model.buffers.numel() == 0
    assert model.unsent_names == {"0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var"}


def test_the_gradient_is_that_of_autograd_for_both_parts():
    module, model = small_model(), FlatModel(small_model(), personal=["0.bias", "1.*"])
    cross_entropy(module(BATCH[0]), BATCH[1]).backward()
    gradients = {name: p.grad.reshape(-1) for name, p in module.named_parameters() if p.requires_grad}
    expected = torch.cat([gradients[name] for name in ("3.weight", "3.bias", "0.bias", "1.weight", "1.bias")])
    torch.testing.assert_close(model.gradient(model.vector, BATCH, cross_entropy, 0), expected)
    assert torch.equal(model.personal_buffers[:5], module[1].running_mean)


def test_a_gradient_at_another_point_changes_no_part():
    model = FlatModel(small_model(), personal=["1.*"])
    parts = [model.vector, model.personal, model.personal_buffers]
    before = [part.clone() for part in parts]
    model.gradient(model.vector + 1, BATCH, cross_entropy, 0)
    assert all(torch.equal(*pair) for pair in zip(parts, before, strict=True))


def test_memories_are_loaded_and_initial_values_restored():
    module = small_model()
    model = FlatModel(module, personal=["3.*"])
    model.personal.fill_(7.0)
    memory = model.personal_memory()
    assert memory.keys() == {"personal/weights"}
    model.load(model.vector.clone(), model.buffers.clone())
    assert torch.equal(model.module[3].weight, module[3].weight)
    assert torch.equal(model.personal_state({})["3.weight"], module[3].weight)
    model.load(model.vector.clone(), model.buffers.clone(), {**memory, "variate": torch.ones(3)})
    assert model.personal.unique().tolist() == [7.0]
    assert model.personal_state(memory)["3.weight"].shape == (3, 5)
    assert split_memory({**memory, "variate": torch.ones(3)})[0].keys() == {"variate"}


def test_tied_parameters_count_under_their_first_name():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    module[1].weight = module[0].weight
    model = FlatModel(module, personal=["0.weight"])
    assert model.personal.numel() == 16
    assert model.unsent_names == {"0.weight", "1.weight"}


def test_models_with_personal_layers_are_not_stacked():
    model = FlatModel(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), personal=["2.*"])
    with pytest.raises(Unstackable, match="it has personal layers"):
        stack_model(model, cross_entropy, BATCH, plain_labels=True)
