"""Data of nodes in every form give the same bits as in the simulator; data that do not fit are explained."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from flwr.clientapp import ClientApp
from nodes import Nodes, arrays, history_of, run, small_model, small_nodes, small_strategy
from small_text import TextClassifier, text_clients
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

import fedtaco
from fedtaco.flower import FedStrategy, train
from fedtaco.testing.small_federation import skewed_clients

SETTINGS = {"local_steps": 3, "batch_size": 4, "local_lr": 0.1}


def node_app(model, data, **options):
    app = ClientApp()

    @app.train()
    def handle(message, context):
        return train(model, data, message, context, **options)

    return app


def collate(samples):
    return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])


TENSORS = [(own.x, own.y) for own in skewed_clients()]
FORMS = {
    "DataLoader": lambda x, y: DataLoader(TensorDataset(x, y), batch_size=5, shuffle=True),
    "collate function": lambda x, y: DataLoader(TensorDataset(x, y), collate_fn=collate),
    "frame": lambda x, y: (pd.DataFrame(x.numpy()).assign(kind=y.numpy()), "kind"),
    "mapping": lambda x, y: {"input": x, "label": y},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_bits_of_the_simulator(form):
    tensors = [(x.float().to(x.dtype) if form == "frame" else x, y) for x, y in TENSORS]
    model = small_model()
    expected = fedtaco.train(model, tensors, method="taco", rounds=3, engine="serial", **SETTINGS)
    nodes = Nodes([node_app(model, FORMS[form](x, y)) for x, y in tensors])
    strategy = FedStrategy("taco", model, fraction_evaluate=0, **SETTINGS)
    result = strategy.start(nodes, arrays(model), num_rounds=3, timeout=1).arrays.to_torch_state_dict()
    for name, tensor in expected.model.state_dict().items():
        assert torch.equal(result[name], tensor)


class CountedReads(torch.utils.data.Dataset):
    """A dataset that counts how many samples are read."""

    def __init__(self, x, y):
        self.x, self.y, self.reads = x, y, 0

    def __len__(self):
        return len(self.y)

    def __getitem__(self, place):
        self.reads += 1
        return self.x[place], self.y[place]


@pytest.mark.parametrize("method", ["scaffold", "mime"])
@pytest.mark.parametrize("epochs", [None, 2])
def test_a_batch_size_beyond_the_samples_of_a_node_is_capped_as_in_the_simulator(method, epochs):
    """The server could otherwise make a node read a million images at once."""
    generator = torch.Generator().manual_seed(3)
    sizes = (12, 300, 255, 257, 5)
    tensors = [
        (torch.randn(size, 4, generator=generator, dtype=torch.float64), torch.arange(size) % 3) for size in sizes
    ]
    settings = {"batch_size": 10_000, "local_lr": 0.1, "local_epochs": epochs, "server_lr": 0.2}
    model, steps = small_model(), 3 if epochs is None else max(-(-epochs * size // max(size, 256)) for size in sizes)
    given = {} if epochs else {"local_steps": steps}
    expected = fedtaco.train(model, tensors, method=method, rounds=2, engine="serial", **settings, **given)
    data = [CountedReads(x, y) for x, y in tensors]
    nodes = Nodes([node_app(model, own) for own in data])
    strategy = FedStrategy(method, model, local_steps=steps, fraction_evaluate=0, **settings)
    result = strategy.start(nodes, arrays(model), num_rounds=2, timeout=1).arrays.to_torch_state_dict()
    for name, tensor in expected.model.state_dict().items():
        assert torch.equal(result[name], tensor)
    for own in data:
        assert own.reads < 50 * max(len(own), 256)


def test_model_with_several_inputs_gives_the_bits_of_the_simulator():
    model, clients = TextClassifier(), text_clients()
    expected = fedtaco.train(model, clients, method="scaffold", rounds=3, engine="serial", **SETTINGS)
    nodes = Nodes([node_app(model, DataLoader(data)) for data in clients])
    strategy = FedStrategy("scaffold", model, fraction_evaluate=0, **SETTINGS)
    result = strategy.start(nodes, arrays(model), num_rounds=3, timeout=1).arrays.to_torch_state_dict()
    for name, tensor in expected.model.state_dict().items():
        assert torch.equal(result[name], tensor)


@pytest.mark.parametrize(
    ("data", "options", "reason"),
    [
        ((TENSORS[2][0][:0], TENSORS[2][1][:0]), {}, "This node has no samples"),
        ((TENSORS[2][0] * torch.nan, TENSORS[2][1]), {}, "Input 0 of this node contains nan"),
        ((TENSORS[2][0], torch.full((12, 3), torch.nan)), {}, "Target 0 of this node contains nan"),
        (
            (TENSORS[2][0] * 1e200, TENSORS[2][1]),
            {},
            "the gradient overflows on samples of this node, with inputs up to",
        ),
        ((TENSORS[2][0], TENSORS[2][1] + 1), {}, "samples of this node: labels are from 1 to 3, but the model has 3"),
        ((*TENSORS[2], 0), {}, "The data are a tuple of 3"),
    ],
    ids=["no samples", "nan", "nan target", "large", "label", "tuple of three"],
)
def test_data_that_do_not_fit_cost_the_reply_of_the_node(data, options, reason):
    nodes, strategy = small_nodes(), small_strategy("taco")
    nodes.apps[103] = node_app(small_model(), data, **options)
    run(strategy, nodes, 1)
    assert reason in history_of(strategy).rounds[0].dropped[2]


def test_loss_that_would_broadcast_is_refused():
    model = nn.Linear(4, 1)
    nodes = Nodes([node_app(model, (x.float(), x[:, 0].float()), loss=mse_loss) for x, _ in TENSORS])
    strategy = FedStrategy("taco", model, fraction_evaluate=0, **SETTINGS)
    with pytest.raises(fedtaco.RunStopped, match=r"predictions have the shape \(n, 1\) and targets \(n,\)"):
        strategy.start(nodes, arrays(model), num_rounds=1, timeout=1)
