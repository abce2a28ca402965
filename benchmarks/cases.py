"""The workloads that every contender runs: models as researchers write them, and random data.

In a round, as in FedAvg, every client starts from the global model and takes K steps of plain SGD. This module does not
import fedtaco, which is not installed in the environments of peers.
"""

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn

LOCAL_LR = 0.01


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.output = nn.Linear(256, 80)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.lstm(self.embedding(x))[0]
        logits: Tensor = self.output(states[:, -1])
        return logits


class ResidualBlock(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(2, out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(2, out_channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            projection = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.GroupNorm(2, out_channels))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


def resnet18() -> nn.Module:
    blocks = [
        ResidualBlock(64, 64, 1),
        ResidualBlock(64, 64, 1),
        ResidualBlock(64, 128, 2),
        ResidualBlock(128, 128, 1),
        ResidualBlock(128, 256, 2),
        ResidualBlock(256, 256, 1),
        ResidualBlock(256, 512, 2),
        ResidualBlock(512, 512, 1),
    ]
    first = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(2, 64), nn.ReLU()]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*first, *blocks, *last)


def cnn() -> nn.Module:
    convolutions = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    layers = [nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    return nn.Sequential(*convolutions, nn.Flatten(), *layers)


def mlp() -> nn.Module:
    sizes = (108, 32, 16, 8, 2)
    layers = [layer for pair in itertools.pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def logistic_regression() -> nn.Module:
    return nn.Linear(784, 10)


@dataclass(frozen=True)
class Case:
    """A workload; its rounds are timed after one round of warm-up."""

    model: Callable[[], nn.Module]
    name: str
    """The model's name in fedtaco."""
    shape: tuple[int, ...]
    """Shape of an input."""
    classes: int
    clients: int
    steps: int
    """Steps of a client in a round, K."""
    samples: int
    """Samples of each client."""
    rounds: int
    flops: float
    """Floating-point operations of one step, forward and backward."""
    batch: int = 64
    share: float = 1.0
    """Fraction of the clients that take part in a round."""

    @property
    def cohort(self) -> int:
        """Number of clients in a round."""
        return round(self.share * self.clients)

    @property
    def is_heavy(self) -> bool:
        """Whether a step takes so long that the case is measured less often."""
        return self.flops > 1e9

    def data(self) -> tuple[Tensor, Tensor]:
        """Return inputs (clients, samples, ...) and labels (clients, samples)."""
        generator = torch.Generator().manual_seed(0)
        size = (self.clients, self.samples)
        if self.name == "lstm":
            x = torch.randint(0, self.classes, (*size, *self.shape), generator=generator)
        else:
            x = torch.randn(*size, *self.shape, generator=generator)
        return x, torch.randint(0, self.classes, size, generator=generator)


CASES = {
    "mlp, 20 clients": Case(mlp, "mlp", (108,), classes=2, clients=20, steps=100, samples=1600, rounds=3, flops=1.2e6),
    "mlp, 100 clients": Case(mlp, "mlp", (108,), classes=2, clients=100, steps=100, samples=320, rounds=2, flops=1.2e6),
    "cnn, 20 clients": Case(
        cnn, "cnn", (1, 28, 28), classes=10, clients=20, steps=100, samples=600, rounds=1, flops=98e6
    ),
    "lstm, 4 clients": Case(Lstm, "lstm", (80,), classes=80, clients=4, steps=4, samples=100, rounds=1, flops=25e9),
    "resnet18, 4 clients": Case(
        resnet18, "resnet18", (3, 32, 32), classes=10, clients=4, steps=1, samples=64, rounds=1, flops=107e9
    ),
}

RUNS = {
    "logistic regression, 1,000 clients, 10 per round, 100 rounds": Case(
        logistic_regression,
        "logistic regression",
        (784,),
        classes=10,
        clients=1000,
        steps=6,
        samples=60,
        rounds=99,
        flops=0.3e6,
        batch=10,
        share=0.01,
    ),
}
"""Whole runs, whose set-up is timed too; a sample has so many numbers that torch sums those of a client in threads."""


def parse_arguments() -> tuple[Case, str]:
    """Return the case and the variant that a contender's command line names."""
    return {**CASES, **RUNS}[sys.argv[1]], sys.argv[2]


def time_rounds(case: Case, run_round: Callable[[], object]) -> None:
    """Time rounds after one for warm-up; print, as one line of JSON, what was measured.

    That is the milliseconds per step, the seconds of all rounds with the first one, and the memory in MB.
    """
    started = perf_counter()
    run_round()
    warm = perf_counter()
    for _ in range(case.rounds):
        run_round()
    ended = perf_counter()
    step_ms = 1000 * (ended - warm) / (case.rounds * case.cohort * case.steps)
    print(json.dumps({"step_ms": step_ms, "run_s": ended - started, "memory_mb": memory_mb()}))


def memory_mb() -> float:
    """Return the memory of this process and its children in MB; pages that several of them share count once."""
    own = Path("/proc/self")
    children = [pid for task in own.glob("task/*/children") for pid in task.read_text().split()]
    rollups = [Path("/proc") / pid / "smaps_rollup" for pid in (own.name, *children)]
    sizes = [line.split()[1] for path in rollups for line in path.read_text().splitlines() if line.startswith("Pss:")]
    return sum(map(int, sizes)) / 1024
