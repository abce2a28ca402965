"""``make bench-flower``: the server's step of TACO on Flower with 100 nodes and the 11 million parameters of ResNet-18.

Replies are real Flower messages, taken in one at a time and kept in a temporary file; numpy's mean is
that of the same matrix. Both take turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import torch
from flwr.app import Message, Metadata
from measure import HERE, alone, machine, ratio

from fedtaco.device import quiet_torch
from fedtaco.flower.collecting import Collecting
from fedtaco.flower.wire import Task, reply_content
from fedtaco.local import Reply, rehearse
from fedtaco.methods import Setting, Taco
from fedtaco.models import FlatModel, build_model
from fedtaco.rounds import Coordinator

NODES, TURNS = 100, 3
RESULTS = HERE / "flower-results.json"
PAGE = HERE.parent / "docs" / "flower.md"


class Peak:
    """The most memory of its own, and of mapped files, that this process had at one time, in MB."""

    def __init__(self) -> None:
        self.own = self.files = 0.0
        self.before = self.now()[0]
        self.watching = True
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    @staticmethod
    def now() -> tuple[float, float]:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
        own, files = (int(lines[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile"))
        return own, files

    def watch(self) -> None:
        while self.watching:
            own, files = self.now()
            self.own, self.files = max(self.own, own), max(self.files, files)
            sleep(0.02)

    def stop(self) -> None:
        self.watching = False
        self.thread.join()


def message(task: Task, update: torch.Tensor) -> Message:
    """A node's reply, as it comes out of Flower."""
    content = reply_content(task, Reply({"update": update}, {}, torch.empty(0), 1.0), 600, lost_memory=False)
    metadata = Metadata(1, "", task.client, 0, "", "1", 0.0, 3600.0, "train")
    return Message(content=content, metadata=metadata)


def main() -> None:
    flat = FlatModel(build_model("resnet18", (3, 32, 32), 10, seed=0))
    size = flat.vector.numel()
    setting = Setting(clients=NODES, rounds=10, local_steps=10, local_lr=0.01)
    coordinator = Coordinator(Taco(), setting, 0, NODES)
    state = coordinator.begin(flat.vector.clone(), flat.buffers.clone())
    cohort = list(range(NODES))
    order = coordinator.order(state, torch.tensor(cohort))
    upload, _ = rehearse(coordinator.method, order, setting, {})
    template = {name: tensor.to("meta") for name, tensor in upload.items()}
    base = torch.randn(size, generator=torch.Generator().manual_seed(0))
    peak = Peak()
    collecting = Collecting(coordinator.method, setting, order, cohort, template, None)
    taking = 0.0
    for client in cohort:
        task = Task("train", 1, "0", client, 0, "taco", {}, setting, 64, 0, {})
        reply = message(task, base.roll(client * 1013) * (1 + client / NODES))
        began = perf_counter()
        reason = collecting.take(client, reply)
        taking += perf_counter() - began
        assert reason is None, reason
        del reply
        tell(f"{client + 1} of {NODES} replies taken in, {taking:.1f} s")
    answers = collecting.answers("")
    matrix = answers.uploads.vectors["update"]
    steps, means = [], []
    for turn in range(TURNS):
        answers.uploads.__dict__.pop("geometry", None)
        answers.uploads.__dict__.pop("move", None)
        began = perf_counter()
        with quiet_torch():
            coordinator.conclude(state, order, answers)
        steps.append(perf_counter() - began)
        if turn == 0:
            peak.stop()
        began = perf_counter()
        np.mean(matrix.numpy(), axis=0)
        means.append(perf_counter() - began)
        tell(f"turn {turn + 1}: step {steps[-1]:.1f} s, numpy's mean {means[-1]:.1f} s")
    found = {
        "machine": machine(),
        "nodes": NODES,
        "parameters": size,
        "uploads_mb": round(matrix.nbytes / 1e6),
        "own_memory_mb": round(peak.own),
        "own_memory_before_mb": round(peak.before),
        "mapped_files_mb": round(peak.files),
        "taking_in_seconds": round(taking, 1),
        "step_seconds": round(statistics.median(steps), 1),
        "numpy_mean_seconds": round(statistics.median(means), 1),
        "step_over_numpy": ratio(steps, means),
    }
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    write_table(found)
    print(json.dumps(found, indent=2))


def write_table(found: dict[str, Any]) -> None:
    """Into the page, between its markers."""
    times = found["step_over_numpy"]
    rows = {
        "memory of its own, at most": f"{found['own_memory_mb']} MB, of which {found['own_memory_before_mb']} before",
        "pages of the file in memory, which the system may take back": f"{found['mapped_files_mb']:,} MB",
        "taking in 100 replies, one after another": f"{found['taking_in_seconds']} s",
        "TACO's step: norms, cosines, α, weights, the weighted sum": f"{found['step_seconds']} s",
        "numpy's mean of the same matrix": f"{found['numpy_mean_seconds']} s",
        "the step over numpy's mean, median and quartiles": f"{times['median']}× ({times['low']} to {times['high']})",
    }
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition("<!-- flower-server -->")
    _, _, tail = rest.partition("<!-- /flower-server -->")
    text = "\n".join([f"{head}<!-- flower-server -->", *lines, f"<!-- /flower-server -->{tail}"])
    PAGE.write_text(text, encoding="utf-8")


def tell(line: str) -> None:
    print(f"\r{line:<70}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    with alone():
        main()
