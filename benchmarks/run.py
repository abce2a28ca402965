"""``make bench``: measures engines, methods, the server's step, whole runs, memory, and growth with the clients.

Engines are compared with the plain PyTorch loop, and methods with FedAvg. With fewer turns than the default, results
are printed and not stored.
"""

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
from cases import CASES, RUNS, Case, memory_mb
from chart import draw_chart
from measure import HERE, benchmark_lock, machine, ratio, run_contender, take_turns
from simulators import build_federation
from tables import write_tables
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedtaco.client import ClientConfig, ClientRunner
from fedtaco.cohort import ClientJob, Instructions
from fedtaco.data import TensorSamples, load_dataset
from fedtaco.methods import PAPER_METHODS, Constants, Method, ServerState, Stem, Taco, Uploads
from fedtaco.models import FlatModel, build_model
from fedtaco.trust import DetectorInput, Guard
from fedtaco.uploads import UploadedVectors

TURNS = 5
RESULTS = HERE / "results.json"
DOCS = HERE.parent / "docs"
PEAK_GFLOPS = 71
"""Peak of one core of the benchmark machine in float32, from which the arithmetic limit is computed."""


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, as in "1 round" or "2 rounds"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


PLAIN = {f"plain loop, {plural(threads, 'thread')}": ("plain.py", str(threads)) for threads in (1, 2)}
PEER = {f"pfl, {plural(threads, 'thread')}": ("pfl_backend.py", str(threads)) for threads in (1, 2)}
ENGINES = {name: ("fedtaco_engine.py", name) for name in ("serial", "pool", "batched", "auto")}
CONTENDERS = {**PLAIN, **PEER, **ENGINES}
"""Script and variant of each contender."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, help="measure one part and keep the results of the others")
    parser.add_argument(
        "--turns", type=int, default=TURNS, help=f"how often each contender is measured (default: {TURNS})"
    )
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter with pfl installed, to measure pfl as well")
    options = parser.parse_args()
    parts = [options.only] if options.only else list(PARTS)
    with benchmark_lock():
        torch.set_num_threads(1)
        if options.turns < TURNS:
            print(json.dumps({part: PARTS[part](options) for part in parts}, indent=2))
            return
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results["machine"] = machine()
        for part in parts:
            results[part] = PARTS[part](options)
            RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    draw_chart(results, DOCS / "images" / "performance.svg")
    write_tables(results, DOCS / "performance.md")


def measure_engines(turns: int, peer_python: str | None) -> dict[str, Any]:
    """Measure one client's step of each contender, in a process of its own each time.

    Parameters
    ----------
    turns
        Number of turns; heavy cases take at most two.
    peer_python
        Interpreter with pfl installed, or ``None`` to omit pfl.
    """
    results = {}
    for name, case in CASES.items():
        engines = useful_engines(case)
        contenders = [*PLAIN, *(PEER if peer_python and not case.is_heavy else ()), *engines]
        timers = {contender: partial(time_step, contender, name, peer_python) for contender in contenders}
        times = take_turns(timers, min(2, turns) if case.is_heavy else turns)
        fastest = {
            kind: [min(turn) for turn in zip(*(times[contender] for contender in group), strict=True)]
            for kind, group in (("plain loop", PLAIN), ("pfl", PEER))
            if set(group) <= set(times)
        }
        results[name] = {
            "step_ms": {contender: round(statistics.median(own), 4) for contender, own in times.items()},
            "limit_ms": round(case.flops / (PEAK_GFLOPS * 1e6) / machine()["cores"], 4),
            "times_faster": {
                f"{engine} than {kind} at its best": ratio(own, times[engine])
                for kind, own in fastest.items()
                for engine in engines
            },
        }
    return results


def time_step(contender: str, case: str, peer_python: str | None) -> float:
    """Run a contender once and return the milliseconds of one client's step."""
    python = peer_python if peer_python and contender in PEER else sys.executable
    milliseconds = run_contender(python, *CONTENDERS[contender], case)["step_ms"]
    show_progress(f"{case}: {contender} {milliseconds:.4f} ms")
    return milliseconds


def useful_engines(case: Case) -> list[str]:
    """Return the engines to measure: all, but ``batched`` only for the mlp, since it is slower for others on a CPU."""
    return [engine for engine in ENGINES if engine != "batched" or case.name == "mlp"]


def measure_methods(turns: int) -> dict[str, Any]:
    """Measure one client's step of each method, relative to FedAvg's."""
    return {
        "mlp": compare_steps("mlp", (108,), 100, turns),
        "cnn": compare_steps("cnn", (1, 28, 28), 20, turns),
    }


def compare_steps(model_name: str, shape: tuple[int, ...], steps: int, turns: int) -> dict[str, Any]:
    """Measure the methods on one model; ``shape`` is that of an input, ``steps`` the local steps of a round."""
    model = FlatModel(build_model(model_name, shape, 10, seed=0))
    samples = TensorSamples(torch.randn(600, *shape), torch.randint(0, 10, (600,)))
    constants = Constants(clients=2, rounds=10, local_steps=steps, local_lr=0.01)
    runner = ClientRunner(model, {0: samples}, ClientConfig(constants, 64, cross_entropy, seed=0))

    def step_ms(method: Method) -> float:
        server = ServerState(model.vector.clone(), method.server_memory(model.vector, constants))
        broadcast = method.broadcast(server, torch.tensor([0, 1]))
        instructions = Instructions("train", 1, broadcast, model.buffers.clone())
        job = ClientJob(0, 0, steps, method.client_memory(model.vector, constants))
        result = runner.run(method, instructions, job)
        assert result.seconds is not None
        return 1000 * result.seconds / steps

    step_ms(Stem())  # warm up
    times = take_turns({method.name: partial(step_ms, method()) for method in PAPER_METHODS}, turns)
    return {
        "fedavg_step_ms": round(statistics.median(times["fedavg"]), 3),
        "times_fedavg": {name: ratio(own, times["fedavg"]) for name, own in times.items() if name != "fedavg"},
    }


def measure_server(turns: int) -> dict[str, Any]:
    """Measure TACO's server step relative to ``U.sum()``, and the guard relative to that step."""
    results = {}
    for rows, columns, copies in ((20, 44_426, 24), (100, 1_000_000, 1), (1000, 44_426, 2)):
        steps = ServerSteps(rows, columns, copies)
        contenders: dict[str, Callable[[Tensor], object]] = {
            "sum": Tensor.sum,
            "taco": steps.aggregate,
            "guard": steps.judge,
        }
        for step in contenders.values():
            steps.time(step)
        times = take_turns({name: partial(steps.time, step) for name, step in contenders.items()}, turns)
        size = f"{rows} x {columns}"
        results[size] = {
            "sum_ms": round(statistics.median(times["sum"]), 3),
            "taco_over_sum": ratio(times["taco"], times["sum"]),
            "guard_over_taco": ratio(times["guard"], times["taco"]),
        }
        show_progress(f"server {size}: {results[size]}")
    return results


class ServerSteps:
    """Steps of a server on matrices of uploads that are not in the processor's cache.

    Parameters
    ----------
    rows, columns
        Number of uploads, and of parameters.
    copies
        Number of matrices, which are used in turn so that none stays in the cache.
    """

    def __init__(self, rows: int, columns: int, copies: int) -> None:
        self.matrices = cycle([torch.randn(rows, columns) for _ in range(copies)])
        self.constants = Constants(clients=rows, rounds=10, local_steps=10, local_lr=0.01)
        self.cohort = torch.arange(rows)
        self.taco, weights = Taco(), torch.zeros(columns)
        self.state = ServerState(weights, self.taco.server_memory(weights, self.constants))
        self.broadcast = self.taco.broadcast(self.state, self.cohort)
        self.guard, self.round = Guard(), 0
        self.guard_memory = self.guard.initial_memory(weights, self.constants)
        for _ in range(20):  # bring the guard to the state it has in the middle of a run, with twenty known moves
            self.judge(torch.randn(2, columns))

    def time(self, step: Callable[[Tensor], object]) -> float:
        """Return the milliseconds of a step on the next matrix."""
        matrix = next(self.matrices)
        started = perf_counter()
        step(matrix)
        return 1000 * (perf_counter() - started)

    def aggregate(self, matrix: Tensor) -> Tensor:
        """Compute norms, cosines, α, weights and the weighted sum."""
        uploads = self.uploads(matrix)
        uploads.aggregation_weights = self.taco.weigh(self.state, uploads)
        return uploads.mean_update

    def judge(self, matrix: Tensor) -> None:
        """Let the guard judge the uploads of a new round."""
        self.round += 1
        broadcast = replace(self.broadcast, start=self.broadcast.start + self.round**2)
        given = DetectorInput(
            broadcast=broadcast,
            cohort=self.cohort,
            uploads=self.uploads(matrix),
            round=self.round,
            partial_participation=False,
            expelled=torch.zeros(len(self.cohort), dtype=torch.bool),
        )
        self.guard_memory = self.guard.judge(self.guard_memory, given).memory

    def uploads(self, matrix: Tensor) -> Uploads:
        count = len(matrix)
        steps, shares = torch.full((count,), 10), torch.full((count,), 1 / count, dtype=torch.float64)
        return Uploads(self.constants, torch.arange(count), UploadedVectors({"update": matrix}), steps, shares)


def measure_small_runs(turns: int) -> dict[str, Any]:
    """Measure a whole small run with ``auto``, including its preparation, relative to the same run with ``serial``."""
    digits = load_dataset("digits")
    results = {}
    for clients, rounds, steps in ((2, 1, 1), (20, 1, 1), (2, 2, 5), (3, 10, 20), (20, 2, 10), (20, 10, 50)):
        parts = [digits.train.subset(range(place, len(digits.train), clients)) for place in range(clients)]

        def run_seconds(engine: str, parts: Any = parts, rounds: int = rounds, steps: int = steps) -> float:
            started = perf_counter()
            federation = build_federation(
                Taco(), small_mlp(), parts, digits.test, rounds=rounds, local_steps=steps, engine=engine
            )
            for _ in federation.rounds(federation.initial):
                pass
            return perf_counter() - started

        run_seconds("serial")  # warm up
        times = take_turns({engine: partial(run_seconds, engine) for engine in ("serial", "auto")}, turns)
        name = f"{plural(clients, 'client')}, {plural(rounds, 'round')}, {plural(steps, 'step')}"
        results[name] = ratio(times["auto"], times["serial"])
    show_progress(f"small runs: {results}")
    return results


def small_mlp() -> torch.nn.Module:
    return build_model("mlp", (1, 8, 8), 10, seed=0)


def measure_many_clients(turns: int) -> dict[str, Any]:
    """Measure how many times faster than the plain loop whole runs with many clients are, including their set-up."""
    results = {}
    for name in RUNS:
        contenders = {**PLAIN, "fedtaco.train": ("fedtaco_train.py", "auto")}
        timers = {contender: partial(time_run, contender, script, name) for contender, script in contenders.items()}
        times = take_turns(timers, turns)
        plain = [min(turn) for turn in zip(*(times[contender] for contender in PLAIN), strict=True)]
        results[name] = ratio(plain, times["fedtaco.train"])
    return results


def time_run(contender: str, script: tuple[str, str], case: str) -> float:
    """Run a contender once and return the seconds of the whole run."""
    seconds = run_contender(sys.executable, *script, case)["run_s"]
    show_progress(f"{case}: {contender} {seconds:.3f} s")
    return seconds


def measure_memory() -> dict[str, Any]:
    """Measure the megabytes of a run besides its data and its matrix of uploads, including worker processes."""
    results = {}
    for name, case in CASES.items():
        if not case.is_heavy:
            parameters = sum(parameter.numel() for parameter in case.model().parameters())
            numbers = case.clients * (parameters + case.samples * math.prod(case.shape))
            contenders = {
                "plain loop": ("plain.py", "1"),
                **{engine: ENGINES[engine] for engine in useful_engines(case)},
            }
            results[name] = {
                contender: round(run_contender(sys.executable, *script, name)["memory_mb"] - 4 * numbers / 2**20)
                for contender, script in {"plain loop": ("plain.py", "1"), **contenders}.items()
            }
            show_progress(f"memory, {name}: {results[name]}")
    return results


def measure_growth() -> dict[str, Any]:
    """Measure the milliseconds of a round and the memory with 20 to 2,000 clients, on digits with mlp and 10 steps."""
    train = load_dataset("digits").train
    results, rounds = {}, 9
    everyone = [(clients, 1.0) for clients in (20, 50, 100, 200, 500, 1000, 2000)]
    for clients, participation in (*everyone, (2000, 0.05)):
        generator = torch.Generator().manual_seed(0)
        parts = [train.subset(torch.randperm(len(train), generator=generator)[:64]) for _ in range(clients)]
        federation = build_federation(
            Taco(), small_mlp(), parts, rounds=rounds, local_steps=10, participation=participation
        )
        ends = []
        for finished in federation.rounds(federation.initial):
            ends.append(perf_counter())
            memory = memory_mb() if finished.state.round == rounds else 0.0
        milliseconds = 1000 * statistics.median(after - before for before, after in pairwise(ends))
        name = f"{clients}" if participation == 1 else f"{clients}, {participation:.0%} per round"
        results[name] = {"round_ms": round(milliseconds, 2), "memory_mb": round(memory)}
        show_progress(f"{name} clients: {results[name]}")
    return results


def show_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "engines": lambda options: measure_engines(options.turns, options.peer),
    "methods": lambda options: measure_methods(12 * options.turns),
    "server": lambda options: measure_server(4 * options.turns),
    "small_runs": lambda options: measure_small_runs(4 * options.turns),
    "many_clients": lambda options: measure_many_clients(options.turns),
    "memory": lambda _: measure_memory(),
    "growth": lambda _: measure_growth(),
}


if __name__ == "__main__":
    main()
