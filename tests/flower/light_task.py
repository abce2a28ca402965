"""The task of the deployment tests: quick to load, and faulty if a file in the folder FEDTACO_FAULTS requests it."""

import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

MAX_WAIT = 150
WIDTH = int(os.environ.get("FEDTACO_WIDTH", "16"))


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))


def load_data(partition: int, partitions: int):
    """Return a node's samples; raise if ``raise-<partition>`` exists, wait while ``wait-<partition>`` exists."""
    faults = Path(os.environ["FEDTACO_FAULTS"])
    if (faults / f"raise-{partition}").exists():
        raise OSError(f"The disk of partition {partition} is on fire.")
    if (faults / f"wait-{partition}").exists():
        (faults / f"waiting-{partition}").touch()
        deadline = time.monotonic() + MAX_WAIT
        while (faults / f"wait-{partition}").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
    return samples(partition)


def samples(partition: int):
    generator = torch.Generator().manual_seed(partition)
    x = torch.randn(120, 8, generator=generator)
    y = (x[:, :4] + 0.5 * torch.randn(120, 4, generator=generator)).argmax(1)
    y[:40] = partition % 4
    return x, y


def evaluate(model: nn.Module) -> dict[str, float]:
    x, y = samples(99)
    with torch.no_grad():
        prediction = model.eval()(x)
    return {
        "accuracy": float((prediction.argmax(1) == y).double().mean()),
        "loss": float(cross_entropy(prediction, y)),
    }
