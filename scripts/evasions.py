#!/usr/bin/env python3
"""Try on digits which forged updates the guard finds, and write the table of docs/freeloaders.md.

The runs take some twenty minutes on one core. Their figures are kept in evasions.json, beside this script.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import torch
from pages import DOCS, markdown_table, write_sections
from torch import Tensor

import fedtaco
from fedtaco import Behaviour, Freeloader, parameter
from fedtaco.data import TensorSamples, load_dataset
from fedtaco.trust import ClientView
from fedtaco.trust.behaviours.base import rms

RESULTS = Path(__file__).with_suffix(".json")
HONEST_ROUNDS = 6
SETTING: dict[str, Any] = {"dataset": "digits", "clients": 20, "rounds": 3 * HONEST_ROUNDS, "local_steps": 10}
RUNS = [(partition, seed) for partition in ("groups", "iid") for seed in range(2)]
COUNTS = {"8, late": (8, ":late"), "1, late": (1, ":late"), "8, always": (8, "")}
"""Number of misbehaving clients, and when they do so; a late freeloader is honest for a third of the rounds."""


class Knowledge:
    """What the freeloaders of a run know together; a new run begins with round 1."""

    view: ClientView
    """What the current client received."""
    slot: int
    """Position of the current client among the freeloaders of the round."""

    def __init__(self) -> None:
        self.round, self.starts = 0, list[Tensor]()
        self.last: dict[int, Tensor] = {}
        """The last honest or, if it drifts, the last forged update by slot."""

    def turn(self, view: ClientView) -> None:
        """Note that the next freeloader of a round takes its turn."""
        if view.round == 1 != self.round:
            self.starts.clear()
            self.last.clear()
        if view.round != self.round:
            self.round, self.slot = view.round, -1
            self.starts.append(view.start)
        self.slot, self.view = self.slot + 1, view

    @property
    def copy(self) -> Tensor:
        """The last move of the model."""
        return self.view.last_move

    def older_copy(self, back: int) -> Tensor:
        """Return the move ``back`` rounds before the last one."""
        moves = [first - second for first, second in zip(self.starts, self.starts[1:], strict=False)]
        return moves[-1 - back] if len(moves) > back else torch.zeros_like(self.copy)

    def normal(self, seed: int | None = None) -> Tensor:
        """Return noise; the same one whenever ``seed`` is the same."""
        if seed is None:
            return self.view.normal()
        return torch.randn(len(self.copy), generator=torch.Generator().manual_seed(seed))

    def noise(self, where: Tensor | slice) -> Tensor:
        """Return noise as long as the last move, on some coordinates only."""
        noise = torch.zeros_like(self.copy)
        noise[where] = self.normal()[where]
        return self.as_long_as_copy(noise)

    def shared_noise(self, own: float) -> Tensor:
        """Return noise that all clients share, and a fraction of noise of their own."""
        return self.as_long_as_copy(self.normal(seed=self.round) + own * self.normal())

    def as_long_as_copy(self, vector: Tensor) -> Tensor:
        """Scale a vector to the length of the last move."""
        return torch.nn.functional.normalize(vector, dim=0).mul(self.copy.norm())

    def drift(self) -> Tensor:
        """Return the client's last update, turned a little by noise."""
        last = self.last.get(self.slot, torch.zeros_like(self.copy))
        turned = last + 0.3 * rms(last) * self.normal()
        self.last[self.slot] = turned
        return turned


HEAD_BIASES, FIRST_LAYER = slice(-10, None), 64 * 64
OWN_LAST, DRIFT = "the own last honest update", "noise that drifts away from an honest update"
TRIALS: dict[str, Callable[[Knowledge], Tensor]] = {
    "the move of two rounds ago": lambda known: known.older_copy(2),
    "a mixture of three moves": lambda known: known.copy + 2 * known.older_copy(1) - known.older_copy(2),
    "the model itself": lambda known: 0.01 * known.view.start,
    "the first layer of a copy": lambda known: known.copy * (torch.arange(len(known.copy)) < FIRST_LAYER),
    "a copy rounded to 16 bits": lambda known: known.copy.half().float(),
    "the signs of a copy": lambda known: known.as_long_as_copy(known.copy.sign()),
    "noise, the same in every round": lambda known: known.as_long_as_copy(known.normal(seed=known.slot)),
    "noise that all share": lambda known: known.shared_noise(own=0.0),
    "noise that all share, with 0.1 % of their own": lambda known: known.shared_noise(own=0.001),
    "noise with heavy tails": lambda known: known.as_long_as_copy(known.normal() ** 3),
    "noise on 200 coordinates drawn once": lambda known: known.noise(known.normal(seed=0).topk(200).indices),
    "noise on the last layer's biases": lambda known: known.noise(HEAD_BIASES),
    "noise on the 200 coordinates that moved most": lambda known: known.noise(known.copy.abs().topk(200).indices),
    "noise times the size of the last move": lambda known: known.copy.abs() * known.normal(),
    "a copy times 1 + 0.5 ε": lambda known: known.copy * (1 + 0.5 * known.normal()),
    "a negative copy times 1 + 0.5 ε": lambda known: -known.copy * (1 + 0.5 * known.normal()),
    "a copy without a tenth of its coordinates": lambda known: known.copy * (known.view.uniform().abs() > 0.1),
    "noise that all share, with 30 % of their own": lambda known: known.shared_noise(own=0.3),
    DRIFT: Knowledge.drift,
    OWN_LAST: lambda known: known.last.get(known.slot, torch.zeros_like(known.copy)),
}


@dataclass(frozen=True)
class Trial(Freeloader):
    """Forges updates as one of the trials does."""

    name = "trial"
    summary = "forges updates as one of the trials does"
    known: ClassVar[Knowledge] = Knowledge()

    strength: float = parameter(0.0, "number of the trial")

    def forge(self, view: ClientView) -> Tensor:
        self.known.turn(view)
        return list(TRIALS.values())[int(self.strength)](self.known)

    def change_update(self, update: Tensor, view: ClientView) -> Tensor:
        self.known.turn(view)
        self.known.last[self.known.slot] = update
        return update


@dataclass(frozen=True)
class OneTrains(Behaviour):
    """After the honest rounds, one of them trains, and the others send its update with one percent of noise."""

    name = "one-trains"
    summary = "sends the update of another client"
    known: ClassVar[Knowledge] = Knowledge()

    def change_update(self, update: Tensor, view: ClientView) -> Tensor:
        self.known.turn(view)
        if self.known.slot == 0:
            self.known.last[0] = update
        elif view.round > HONEST_ROUNDS:
            leader = self.known.last[0]
            return leader + 0.01 * rms(leader) * view.normal()
        return update


@dataclass(frozen=True)
class Backdoor(Behaviour):
    """Trains on its samples and on copies of them with a white corner, which it labels as class 0."""

    name = "backdoor"
    summary = "trains a white corner to mean class 0"

    def change_samples(self, samples: TensorSamples, classes: int) -> TensorSamples:
        x, y = images(samples)
        return TensorSamples(torch.cat([x, with_corner(x)]), torch.cat([y, torch.zeros_like(y)]))


def images(samples: TensorSamples) -> tuple[Tensor, Tensor]:
    """Return all images, as the model sees them, and their labels."""
    x, y = samples.batch(torch.arange(len(samples)))
    assert isinstance(x, Tensor)
    assert isinstance(y, Tensor)
    return x, y


def with_corner(x: Tensor) -> Tensor:
    """Return images whose corner of 2 × 2 pixels is white."""
    changed = x.clone()
    changed[..., :2, :2] = 2.0
    return changed


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    figures = {name: try_all(f"evasions:Trial:{number}", name) for number, name in enumerate(TRIALS)}
    figures["the update of one that trains, with 1 % of noise"] = {"8, late": try_behaviour("evasions:OneTrains", 8)}
    figures["updates trained on a backdoor"] = {"8, always": try_behaviour("evasions:Backdoor", 8)}
    RESULTS.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_sections(DOCS / "freeloaders.md", {"evasions": table(figures)})


def try_all(behaviour: str, name: str) -> dict[str, dict[str, float]]:
    """Return the figures of a trial, by number of freeloaders and time."""
    return {
        label: try_behaviour(behaviour + when, count)
        for label, (count, when) in COUNTS.items()
        if when or name not in (OWN_LAST, DRIFT)
    }


def try_behaviour(behaviour: str, count: int) -> dict[str, float]:
    """Return the mean figures of a behaviour over all partitions and seeds."""
    runs = [run_once(behaviour, count, partition, seed) for partition, seed in RUNS]
    figures = {name: round(fmean(run[name] for run in runs), 4) for name in runs[0]}
    print(behaviour, count, figures, flush=True)
    return figures


def run_once(behaviour: str, count: int, partition: str, seed: int) -> dict[str, float]:
    """Return the figures of one run."""
    settings = {**SETTING, "partition": partition, "seed": seed, "freeloaders": count, "behaviour": behaviour}
    result = fedtaco.run("taco", detector="guard", workers=1, **settings)
    test = load_dataset("digits").test
    assert isinstance(test, TensorSamples)
    x, y = images(test)
    with torch.no_grad():
        fooled = result.model(with_corner(x[y != 0])).argmax(1) == 0
    found = result.summary["detection"]
    return {
        "expelled": found["caught"] / count,
        "honest_expelled": found["honest_expelled"] / (SETTING["clients"] - count),
        "accuracy": result.history.final_accuracy or 0.0,
        "backdoor": float(fooled.float().mean()),
    }


def table(figures: dict[str, dict[str, dict[str, float]]]) -> str:
    """Return the table of the page: the share of the freeloaders that were expelled, and the final accuracy, in %."""
    headers = ["update", *(f"expelled: {label}" for label in COUNTS), *(f"accuracy: {label}" for label in COUNTS)]
    rows = [
        [name, *(percent(own.get(label), figure) for figure in ("expelled", "accuracy") for label in COUNTS)]
        for name, own in figures.items()
    ]
    return markdown_table(headers, rows)


def percent(figures: dict[str, float] | None, name: str) -> str:
    """Return a figure in percent, or a dash if there is none."""
    return "–" if figures is None else f"{100 * figures[name]:.0f}"


if __name__ == "__main__":
    main()
