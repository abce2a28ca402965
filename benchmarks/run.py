"""``make bench``: engines against the plain PyTorch loop, methods against FedAvg, the server's step, growth."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle, pairwise
from time import perf_counter
from typing import Any

import torch
from chart import draw
from measure import HERE, alone, in_a_process, machine, ratio, take_turns
from tables import write_tables
from torch.nn.functional import cross_entropy
from work import CASES, Case, memory_mb

from fedtaco import trust
from fedtaco.data import TensorSamples, load_dataset
from fedtaco.runs.config import Training
from fedtaco.experiment.training import assemble
from fedtaco.client import Instructions, Job, ClientConfig, ClientRunner
from fedtaco.methods import PAPER_METHODS, Broadcast, Method, ServerState, Constants, Stem, Taco, Uploads
from fedtaco.models import FlatModel, build_model

RESULTS = HERE / "results.json"
DOCS = HERE.parent / "docs"
PEAK_GFLOPS = 71
"""Of one core, in float32; the arithmetic limit is reckoned with it."""
PLAIN = {f"plain loop, {threads} thread{'s' * (threads > 1)}": ("plain.py", str(threads)) for threads in (1, 2)}
OURS = {name: ("fedtaco_engine.py", name) for name in ("serial", "pool", "batched", "auto")}
PEER = {f"pfl, {threads} thread{'s' * (threads > 1)}": ("pfl_backend.py", str(threads)) for threads in (1, 2)}


def engines(turns: int, peer: str | None) -> dict[str, Any]:
    """Milliseconds of one client's step, every contender in a process of its own."""
    results = {}
    for name, case in CASES.items():
        heavy = case.flops > 1e9
        rivals = {**PLAIN, **(PEER if peer and not heavy else {})}
        ours = _ours(case)

        def measure(contender: str, script: str, variant: str, case_name: str) -> float:
            python = peer if peer and contender in PEER else sys.executable
            measured = in_a_process(python, script, case_name, variant)
            tell(f"{case_name}: {contender} {measured['step_ms']:.4f} ms")
            return measured["step_ms"]

        contenders = {c: partial(measure, c, *how, name) for c, how in {**rivals, **ours}.items()}
        taken = take_turns(contenders, 2 if heavy else turns)
        best = {
            kind: [min(each) for each in zip(*(taken[c] for c in group), strict=True)]
            for kind, group in (("plain loop", PLAIN), ("pfl", PEER))
            if set(group) <= set(taken)
        }
        results[name] = {
            "step_ms": {c: round(statistics.median(times), 4) for c, times in taken.items()},
            "limit_ms": round(case.flops / (PEAK_GFLOPS * 1e6) / machine()["cores"], 4),
            "times_faster": {
                f"{engine} than {kind} at its best": ratio(times, taken[engine])
                for kind, times in best.items()
                for engine in ours
            },
        }
    return results


def _ours(case: Case) -> dict[str, tuple[str, str]]:
    """Our engines; batched only where it is of use on a CPU."""
    return {engine: how for engine, how in OURS.items() if engine != "batched" or case.name == "mlp"}


def methods(turns: int) -> dict[str, Any]:
    """One client's step, in parts of FedAvg's."""
    return {
        "mlp": _steps("mlp", (108,), 100, turns),
        "cnn": _steps("cnn", (1, 28, 28), 20, turns),
    }


def _steps(name: str, shape: tuple[int, ...], count: int, turns: int) -> dict[str, Any]:
    model = FlatModel(build_model(name, shape, 10, seed=0))
    samples = TensorSamples(torch.randn(600, *shape), torch.randint(0, 10, (600,)))
    constants = Constants(2, 10, count, 0.01)
    runner = ClientRunner(model, [samples], ClientConfig(constants, 64, cross_entropy, 0))

    def step(method: Method) -> float:
        server = ServerState(model.vector.clone(), method.server_memory(model.vector, constants))
        order = Instructions("train", 1, method.broadcast(server, torch.tensor([0, 1])), model.buffers.clone())
        reply = runner.run(method, order, Job(0, 0, count, method.client_memory(model.vector, constants)))
        assert reply.seconds is not None
        return 1000 * reply.seconds / count

    step(Stem())
    taken = take_turns({kind.name: partial(step, kind()) for kind in PAPER_METHODS}, turns)
    return {
        "fedavg_step_ms": round(statistics.median(taken["fedavg"]), 3),
        "times_fedavg": {name: ratio(times, taken["fedavg"]) for name, times in taken.items() if name != "fedavg"},
    }


def server(turns: int) -> dict[str, Any]:
    """TACO's server step against ``U.sum()``, and the guard against that step; matrices are not in the cache."""
    results = {}
    for rows, columns, copies in ((20, 44_426, 24), (100, 1_000_000, 1), (1000, 44_426, 2)):
        matrices = cycle([torch.randn(rows, columns) for _ in range(copies)])
        constants = Constants(rows, 10, 10, 0.01)
        taco, weights = Taco(), torch.zeros(columns)
        state = ServerState(weights, taco.server_memory(weights, constants))

        def timed(work: Callable[[torch.Tensor], object], matrices: Any = matrices) -> float:
            matrix = next(matrices)
            began = perf_counter()
            work(matrix)
            return 1000 * (perf_counter() - began)

        def uploads_of(matrix: torch.Tensor, constants: Constants = constants) -> Uploads:
            count = len(matrix)
            shares = torch.full((count,), 1 / count, dtype=torch.float64)
            return Uploads(constants, torch.arange(count), {"update": matrix}, torch.full((count,), 10), shares)

        def step(matrix: torch.Tensor, state: ServerState = state, taco: Taco = taco) -> torch.Tensor:
            """Norms, cosines, α, weights and the weighted sum."""
            uploads = uploads_of(matrix)
            uploads.aggregation_weights = taco.weigh(state, uploads)
            return uploads.mean_update

        judge = Judging(taco.broadcast(state, torch.arange(rows)), constants)

        def guard(matrix: torch.Tensor, judge: Judging = judge) -> None:
            judge(uploads_of(matrix))

        work = {"sum": torch.Tensor.sum, "taco": step, "guard": guard}
        for contender in work.values():
            timed(contender)
        taken = take_turns({name: partial(timed, contender) for name, contender in work.items()}, turns)
        results[f"{rows} x {columns}"] = {
            "sum_ms": round(statistics.median(taken["sum"]), 3),
            "taco_over_sum": ratio(taken["taco"], taken["sum"]),
            "guard_over_taco": ratio(taken["guard"], taken["taco"]),
        }
        tell(f"server {rows} x {columns}: {results[f'{rows} x {columns}']}")
    return results


class Judging:
    """A guard in the midst of a run: twenty moves are known."""

    def __init__(self, sent: Broadcast, constants: Constants) -> None:
        self.sent, self.guard, self.round = sent, trust.Guard(), 0
        self.memory = self.guard.begin(sent.start, constants)
        two = {"update": torch.randn(2, len(sent.start))}
        for _ in range(20):
            self(Uploads(constants, torch.arange(2), two, torch.ones(2), torch.ones(2)))

    def __call__(self, uploads: Uploads) -> None:
        self.round += 1
        sent = replace(self.sent, start=self.sent.start + self.round**2)
        case = trust.Case(sent, torch.arange(uploads.constants.clients), uploads, self.round, partial=False)
        self.memory = self.guard.judge(self.memory, case).memory


def small_runs(turns: int) -> dict[str, Any]:
    """A whole small run with ``auto``, set-up included, in parts of the same with ``serial``."""
    digits = load_dataset("digits", None)
    results = {}
    for clients, rounds, steps in ((2, 1, 1), (20, 1, 1), (2, 2, 5), (3, 10, 20), (20, 2, 10), (20, 10, 50)):
        parts = [digits.train.subset(range(place, len(digits.train), clients)) for place in range(clients)]

        def whole(engine: Any, parts: Any = parts, rounds: int = rounds, steps: int = steps) -> float:
            began = perf_counter()
            settings = Training(rounds=rounds, local_steps=steps, engine=engine)
            simulator, _ = assemble(settings, Taco(), build_model("mlp", (1, 8, 8), 10, seed=0), parts, digits.test)
            for _ in simulator.rounds(simulator.begin()):
                pass
            return perf_counter() - began

        whole("serial")
        taken = take_turns({engine: partial(whole, engine) for engine in ("serial", "auto")}, turns)
        results[f"{clients} clients, {rounds} rounds, {steps} steps"] = ratio(taken["auto"], taken["serial"])
    tell(f"small runs: {results}")
    return results


def memory() -> dict[str, Any]:
    """Megabytes that a run holds beyond its data and update matrix, worker processes included."""
    results = {}
    for name, case in CASES.items():
        if case.flops < 1e9:
            numbers = sum(p.numel() for p in case.model().parameters()) * case.clients
            numbers += case.clients * case.samples * math.prod(case.shape)
            held = {
                contender: in_a_process(sys.executable, script, name, variant)["memory_mb"] - 4 * numbers / 2**20
                for contender, (script, variant) in {"plain loop": ("plain.py", "1"), **_ours(case)}.items()
            }
            results[name] = {contender: round(value) for contender, value in held.items()}
            tell(f"memory, {name}: {results[name]}")
    return results


def growth() -> dict[str, Any]:
    """Seconds and memory of a round from 20 to 2,000 clients: digits, mlp, 10 steps."""
    digits = load_dataset("digits", None)
    results = {}
    for clients, participation in (
        (20, 1.0),
        (50, 1.0),
        (100, 1.0),
        (200, 1.0),
        (500, 1.0),
        (1000, 1.0),
        (2000, 1.0),
        (2000, 0.05),
    ):
        generator = torch.Generator().manual_seed(0)
        parts = [
            digits.train.subset(torch.randperm(len(digits.train), generator=generator)[:64]) for _ in range(clients)
        ]
        settings = Training(rounds=9, local_steps=10, participation=participation)
        simulator, _ = assemble(settings, Taco(), build_model("mlp", (1, 8, 8), 10, seed=0), parts, None)
        stamps = []
        for outcome in simulator.rounds(simulator.begin()):
            stamps.append(perf_counter())
            held = memory_mb() if outcome.state.round == settings.rounds else 0.0
        seconds = statistics.median(after - before for before, after in pairwise(stamps))
        asked = f"{clients}" if participation == 1 else f"{clients}, {participation:.0%} in a round"
        results[asked] = {"round_ms": round(1000 * seconds, 2), "memory_mb": round(held)}
        tell(f"{asked} clients: {results[asked]}")
    return results


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "engines": lambda asked: engines(asked.turns, asked.peer),
    "methods": lambda asked: methods(12 * asked.turns),
    "server": lambda asked: server(4 * asked.turns),
    "small_runs": lambda asked: small_runs(4 * asked.turns),
    "memory": lambda _: memory(),
    "growth": lambda _: growth(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="measure one part and keep the other results")
    parser.add_argument("--turns", type=int, default=5, help="how often each contender is measured")
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter with pfl, which then competes")
    asked = parser.parse_args()
    with alone():
        torch.set_num_threads(1)
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results["machine"] = machine()
        for name in [asked.only] if asked.only else PARTS:
            results[name] = PARTS[name](asked)
            RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    draw(results, DOCS / "images" / "performance.svg")
    write_tables(results, DOCS / "performance.md")


if __name__ == "__main__":
    main()
