"""The task: a small network on scikit-learn's handwritten digits, with different labels on each node.

Replace the three functions by your own: the first runs everywhere, the second on the nodes, the third on the server.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco import split
from fedtaco.data import Samples, load_dataset


def net() -> nn.Module:
    """Return the network, with the same initial weights on every machine."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def load_data(partition: int, partitions: int) -> Samples:
    """Return the samples of one node: a DataLoader, a Dataset, a pair of tensors, or Samples as here.

    Both numbers come from ``--node-config``. Nodes with data of their own need neither.
    """
    return split(load_dataset("digits").train, "dirichlet:0.5", partitions)[partition]


def evaluate(model: nn.Module) -> dict[str, float]:
    """Return accuracy and loss on the test digits; the report shows them."""
    test = load_dataset("digits").test
    x, y = test.batch(torch.arange(len(test)))
    with torch.no_grad():
        prediction = model.eval()(x)
    accuracy = (prediction.argmax(1) == y).double().mean()
    return {"accuracy": float(accuracy), "loss": float(cross_entropy(prediction, y))}
