"""Data, a model and a partition of your own, for the command line in this folder:

fedtaco run --dataset own_things:load --model own_things:Net --partition own_things:split --clients 6 --rounds 10
fedtaco compare --methods fedavg,taco --seeds 2 --dataset own_things:load --model own_things:Net --rounds 10
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import fedtaco

Pair = tuple[Tensor, Tensor]


def load() -> tuple[Pair, Pair]:
    """Return the training and the test samples; a list with one pair per client would be possible too."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(3, 8, generator=generator)

    def draw(count: int) -> Pair:
        y = torch.randint(0, 3, (count,), generator=generator)
        return centres[y] + torch.randn(count, 8, generator=generator), y

    return draw(1200), draw(500)


class Net(nn.Sequential):
    """Is called without arguments; torch is seeded, so that the initial weights depend on the seed of the run."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def split(labels: npt.NDArray[np.int64], clients: int, rng: np.random.Generator) -> list[npt.NDArray[np.int64]]:
    """Return the indices of each client's samples: half of them sorted by label, the others at random."""
    order = rng.permutation(len(labels))
    half = len(order) // 2
    by_label = order[:half][np.argsort(labels[order[:half]], kind="stable")]
    parts = zip(np.array_split(by_label, clients), np.array_split(order[half:], clients), strict=True)
    return [np.concatenate(own) for own in parts]


if __name__ == "__main__":
    result = fedtaco.run(
        "taco", dataset="own_things:load", model=Net, partition="own_things:split", clients=6, rounds=10, local_steps=20
    )
    print(f"accuracy after 10 rounds: {result.history.final_accuracy:.1%}")
