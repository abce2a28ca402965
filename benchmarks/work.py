"""The work that all contenders do, without fedtaco: models as researchers write them, and random data.

One round is FedAvg: every client starts from the global model and takes K steps of plain SGD.
"""

from __future__ import annotations

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
        return self.output(self.lstm(self.embedding(x))[0][:, -1])


class Block(nn.Module):
    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(2, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(2, channels)
        self.short = nn.Sequential()
        if stride != 1 or before != channels:
            self.short = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), nn.GroupNorm(2, channels))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(out)) + self.short(x))


def resnet18() -> nn.Module:
    plan = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(2, 64), nn.ReLU()]
    return nn.Sequential(
        *stem, *(Block(*one) for one in plan), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        *(
            nn.Conv2d(1, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        ),
        *(nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def mlp() -> nn.Module:
    sizes = (108, 32, 16, 8, 2)
    layers = [layer for pair in itertools.pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


@dataclass(frozen=True)
class Case:
    """Clients with ``samples`` each, K ``steps`` of ``batch`` in a round; ``rounds`` are timed after one more."""

    model: Callable[[], nn.Module]
    name: str
    """The model's name in fedtaco."""
    shape: tuple[int, ...]
    classes: int
    clients: int
    steps: int
    samples: int
    rounds: int
    batch: int = 64
    flops: float = 0
    """Floating-point operations of one step, forward and backward."""

    def data(self) -> tuple[Tensor, Tensor]:
        """Inputs (clients, samples, ...) and labels (clients, samples)."""
        generator = torch.Generator().manual_seed(0)
        size = (self.clients, self.samples)
        if self.name == "lstm":
            x = torch.randint(0, self.classes, (*size, *self.shape), generator=generator)
        else:
            x = torch.randn(*size, *self.shape, generator=generator)
        return x, torch.randint(0, self.classes, size, generator=generator)


CASES = {
    "mlp, 20 clients": Case(mlp, "mlp", (108,), 2, 20, 100, 1600, 3, flops=1.2e6),
    "mlp, 100 clients": Case(mlp, "mlp", (108,), 2, 100, 100, 320, 2, flops=1.2e6),
    "cnn, 20 clients": Case(cnn, "cnn", (1, 28, 28), 10, 20, 100, 600, 1, flops=98e6),
    "lstm, 4 clients": Case(Lstm, "lstm", (80,), 80, 4, 4, 100, 1, flops=25e9),
    "resnet18, 4 clients": Case(resnet18, "resnet18", (3, 32, 32), 10, 4, 1, 64, 1, flops=107e9),
}


def report(case: Case, play_round: Callable[[], None]) -> None:
    """Warm up, time the rounds, and print what was measured as one line of JSON."""
    play_round()
    began = perf_counter()
    for _ in range(case.rounds):
        play_round()
    seconds = perf_counter() - began
    steps = case.rounds * case.clients * case.steps
    print(json.dumps({"step_ms": 1000 * seconds / steps, "memory_mb": memory_mb()}))


def memory_mb() -> float:
    """What this process and its children hold; a page that several share counts once."""
    own = Path("/proc/self")
    children = [pid for task in own.glob("task/*/children") for pid in task.read_text().split()]
    rollups = [Path("/proc") / pid / "smaps_rollup" for pid in (own.name, *children)]
    held = [line.split()[1] for path in rollups for line in path.read_text().splitlines() if line.startswith("Pss:")]
    return sum(map(int, held)) / 1024


def asked() -> tuple[Case, str]:
    """The case and the variant named on the command line."""
    return CASES[sys.argv[1]], sys.argv[2]
