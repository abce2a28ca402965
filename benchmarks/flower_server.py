"""``make bench-flower``: the server's step of TACO on Flower, with 100 nodes and ResNet-18's 11 million parameters.

Replies are real Flower messages, whose uploads are collected one at a time in a temporary file. The step is compared
with numpy's mean of the same matrix; the two are measured in turns. ``--nodes`` and ``--model`` choose a smaller
benchmark, whose results are printed and not stored.
"""

from __future__ import annotations

import argparse
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
from measure import HERE, benchmark_lock, machine, ratio

from fedtaco.client import dry_run
from fedtaco.cohort import ClientResult, CohortResults, Instructions
from fedtaco.compression import Compression
from fedtaco.device import deterministic_torch
from fedtaco.flower.replies import ReplyCollector, UploadFormat
from fedtaco.flower.wire import ReplyHeader, reply_records
from fedtaco.methods import Taco
from fedtaco.models import FlatModel, build_model
from fedtaco.parameters import Domain
from fedtaco.run_state import RunState
from fedtaco.server import Server
from fedtaco.settings.run_spec import RunSpec

NODES, MODEL, STEPS, TURNS = 100, "resnet18", 10, 3
RESULTS = HERE / "flower-results.json"
PAGE = HERE.parent / "docs" / "flower.md"


class PeakMemory:
    """Records the peaks of this process's private memory and of its mapped files, in MB, until it is stopped."""

    def __init__(self) -> None:
        self.private = self.files = 0.0
        self.private_before = self.now()[0]
        self.running = True
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    @staticmethod
    def now() -> tuple[float, float]:
        """Return the current private memory and mapped files."""
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
        private, files = (int(lines[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile"))
        return private, files

    def watch(self) -> None:
        while self.running:
            private, files = self.now()
            self.private, self.files = max(self.private, private), max(self.files, files)
            sleep(0.02)

    def stop(self) -> None:
        self.running = False
        self.thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the server's step of TACO on Flower.")
    parser.add_argument("--nodes", type=int, default=NODES, help="number of nodes")
    parser.add_argument("--model", default=MODEL, help="the model, such as mlp for a small benchmark")
    options = parser.parse_args()
    results = measure(options.nodes, options.model)
    if (options.nodes, options.model) == (NODES, MODEL):
        RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        write_table(results)
    print(json.dumps(results, indent=2))


def measure(nodes: int, model: str) -> dict[str, Any]:
    """Take all measurements; return them as the results file stores them."""
    flat = FlatModel(build_model(model, (3, 32, 32), 10, seed=0))
    spec = RunSpec.with_defaults(Taco(), {"clients": nodes, "rounds": 10, "local_steps": STEPS, "local_lr": 0.01})
    constants = spec.constants(nodes, STEPS)
    server = Server(spec, constants, nodes)
    state = server.initial_state(flat.vector.clone(), flat.buffers.clone())
    instructions = server.train_instructions(state, torch.arange(nodes))
    upload, _ = dry_run(server.method, instructions, constants, {})
    template = {name: tensor.to("meta") for name, tensor in upload.items()}
    expected = UploadFormat(Compression(spec, constants), template, template, flat.min_buffers, None)
    valid_steps = dict.fromkeys(range(nodes), Domain("steps", low=STEPS, high=STEPS, whole=True))
    collector = ReplyCollector(expected, instructions, valid_steps)
    base = torch.randn(flat.vector.shape, generator=torch.Generator().manual_seed(0))
    peak = PeakMemory()
    collecting_seconds = collect(collector, base)
    results = collector.results("")
    steps, means = time_steps(server, state, instructions, results, peak)
    return {
        "machine": machine(),
        "nodes": nodes,
        "parameters": flat.vector.numel(),
        "uploads_mb": round(results.vectors["update"].nbytes / 1e6),
        "private_memory_mb": round(peak.private),
        "private_memory_before_mb": round(peak.private_before),
        "mapped_files_mb": round(peak.files),
        "collecting_seconds": round(collecting_seconds, 1),
        "step_seconds": round(statistics.median(steps), 1),
        "numpy_mean_seconds": round(statistics.median(means), 1),
        "step_over_numpy": ratio(steps, means),
    }


def collect(collector: ReplyCollector, base: torch.Tensor) -> float:
    """Collect one reply per node, each with an update derived from ``base``; return the seconds it took."""
    cohort, seconds = collector.cohort, 0.0
    for client in cohort:
        reply = make_reply(client, base.roll(client * 1013) * (1 + client / len(cohort)))
        started = perf_counter()
        reason = collector.take(client, reply)
        seconds += perf_counter() - started
        assert reason is None, reason
        del reply
        show_progress(f"{client + 1} of {len(cohort)} replies collected, {seconds:.1f} s")
    return seconds


def make_reply(client: int, update: torch.Tensor) -> Message:
    """Return a node's reply as Flower delivers it."""
    header = ReplyHeader("train", 1, client, STEPS, lost_memory=False)
    content = reply_records(header, ClientResult({"update": update}, {}, torch.empty(0), 1.0), 600)
    metadata = Metadata(1, "", client, 0, "", "1", 0.0, 3600.0, "train")
    reply: Message = Message(content=content, metadata=metadata)  # type: ignore[call-overload]  # as Flower itself does
    return reply


def time_steps(
    server: Server, state: RunState, instructions: Instructions, results: CohortResults, peak: PeakMemory
) -> tuple[list[float], list[float]]:
    """Return the seconds of the server's step and of numpy's mean, measured in turns."""
    steps, means = [], []
    for turn in range(TURNS):
        started = perf_counter()
        with deterministic_torch():
            server.conclude(state, instructions, results)
        steps.append(perf_counter() - started)
        if turn == 0:
            peak.stop()
        started = perf_counter()
        np.mean(results.vectors["update"].numpy(), axis=0)
        means.append(perf_counter() - started)
        show_progress(f"turn {turn + 1}: step {steps[-1]:.1f} s, numpy's mean {means[-1]:.1f} s")
    return steps, means


def write_table(results: dict[str, Any]) -> None:
    """Write the table of docs/flower.md, between its markers."""
    times, before = results["step_over_numpy"], results["private_memory_before_mb"]
    rows = {
        "private memory at its peak": f"{results['private_memory_mb']} MB, of which {before} MB before the first reply",
        "pages of the temporary file in memory, which the system can reclaim": f"{results['mapped_files_mb']:,} MB",
        f"collecting {results['nodes']} replies, one at a time": f"{results['collecting_seconds']} s",
        "TACO's step: norms, cosines, α, weights and the weighted sum": f"{results['step_seconds']} s",
        "numpy's mean of the same matrix": f"{results['numpy_mean_seconds']} s",
        "ratio of the two, median and quartiles": f"{times['median']}× ({times['low']} to {times['high']})",
    }
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition("<!-- flower-server -->")
    _, _, tail = rest.partition("<!-- /flower-server -->")
    text = "\n".join([f"{head}<!-- flower-server -->", *lines, f"<!-- /flower-server -->{tail}"])
    PAGE.write_text(text, encoding="utf-8")


def show_progress(line: str) -> None:
    print(f"\r{line:<70}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    with benchmark_lock():
        main()
