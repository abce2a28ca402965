"""The contract of detectors: one function per rule, whose docstring says what must hold."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedtaco.data import TensorSamples
from fedtaco.methods import Scaffold, Taco
from fedtaco.server import FinishedRound, RunState
from fedtaco.testing.engines import ReversedEngine, through_bytes
from fedtaco.testing.method_contract import assert_same
from fedtaco.testing.small import CLIENTS, ROUNDS, make_simulator, run_rounds, skewed_clients
from fedtaco.trust import AdversarialClients, Detector, parse_behaviour

RECORD = ("strikes", "seen", "expelled")


def check_detector(detector: Detector) -> None:
    """Check a detector against the whole contract.

    Raises
    ------
    AssertionError
        With a sentence about the first rule that the detector breaks.
    """
    for check in DETECTOR_CONTRACT:
        try:
            check(detector)
        except AssertionError:
            raise
        except Exception as error:
            rule = check.__name__.replace("_", " ")
            raise AssertionError(f"{detector.name} fails '{rule}' with {type(error).__name__}: {error}") from error


def memory_is_plain_data(detector: Detector) -> None:
    """The memory is named tensors with ``strikes``, ``seen`` and ``expelled`` per client, and keeps its names."""
    simulator = make_simulator(Taco(), detector=detector)
    before = simulator.initial_state().trust
    for name in RECORD:
        assert name in before, f"{detector.name}: initial_memory has no '{name}'"
        assert before[name].shape == (CLIENTS,), f"{detector.name}: '{name}' needs one entry per client"
    for finished in run_rounds(simulator, simulator.initial_state()):
        after = finished.state.trust
        assert set(after) == set(before), f"{detector.name}: the memory's names change from round to round"


def runs_are_reproducible(detector: Detector) -> None:
    """Neither a second run nor the order in which clients are run changes a decision."""
    first = _rounds(detector)
    for other in (_rounds(detector), _rounds(detector, engine=ReversedEngine)):
        _assert_same_decisions(first, other, f"{detector.name}: two runs differ")


def decisions_survive_saving(detector: Detector) -> None:
    """A run that is stopped, saved as bytes, loaded and continued decides as an uninterrupted one."""
    simulator = make_simulator(Scaffold(), detector=detector)
    unbroken = run_rounds(simulator, simulator.initial_state())
    halfway = unbroken[ROUNDS // 2 - 1].state
    loaded = RunState(halfway.round, halfway.server, halfway.buffers, halfway.memories, through_bytes(halfway.trust))
    resumed = run_rounds(make_simulator(Scaffold(), detector=detector), loaded)
    _assert_same_decisions(unbroken[ROUNDS // 2 :], resumed, f"{detector.name}: a resumed run differs")


def expelled_clients_stay_out(detector: Detector) -> None:
    """A client that was expelled is never asked again, and what is dropped has a reason."""
    expelled: set[int] = set()
    for finished in _rounds(detector, freeloaders="zero"):
        asked = {record.client for record in finished.clients}
        assert not asked & expelled, f"{detector.name}: an expelled client was asked again"
        for decision in finished.record.decisions:
            assert decision.reason, f"{detector.name}: a decision has no reason"
        decided = {decision.client for decision in finished.record.decisions}
        assert set(finished.record.dropped) <= decided, f"{detector.name}: an upload was dropped without a decision"
        expelled |= set(torch.nonzero(finished.state.trust["expelled"]).flatten().tolist())


def few_clients_work(detector: Detector) -> None:
    """One client and two clients are enough, and so is partial participation."""
    for options in ({"clients": skewed_clients()[:1]}, {"clients": skewed_clients()[:2]}, {"participation": 0.4}):
        weights = _rounds(detector, **options)[-1].state.server.weights
        assert torch.isfinite(weights).all(), f"{detector.name}: the model is not finite"


def broken_uploads_are_never_judged(detector: Detector) -> None:
    """An upload that is not finite is dropped before the detector sees it."""
    clients = skewed_clients()
    clients[2] = TensorSamples(torch.full_like(clients[2].x, torch.nan), clients[2].y)
    for finished in _rounds(detector, clients=clients):
        assert 2 in finished.record.dropped, f"{detector.name}: a broken upload was used"
        assert finished.clients[2].scores == {}, f"{detector.name}: a broken upload was judged"


DETECTOR_CONTRACT: tuple[Callable[[Detector], None], ...] = (
    memory_is_plain_data,
    runs_are_reproducible,
    decisions_survive_saving,
    expelled_clients_stay_out,
    few_clients_work,
    broken_uploads_are_never_judged,
)


def _rounds(detector: Detector, freeloaders: str | None = None, **options: object) -> list[FinishedRound]:
    adversaries = None
    if freeloaders is not None:
        adversaries = AdversarialClients(frozenset({1}), parse_behaviour(freeloaders), seed=0)
    given: dict[str, object] = {"detector": detector, "adversaries": adversaries, **options}
    simulator = make_simulator(Taco(), **given)  # type: ignore[arg-type]  # passed through
    return run_rounds(simulator, simulator.initial_state())


def _assert_same_decisions(first: list[FinishedRound], second: list[FinishedRound], complaint: str) -> None:
    for one, other in zip(first, second, strict=True):
        assert one.record.decisions == other.record.decisions, f"{complaint} (decisions of round {one.record.round})"
        assert_same(one.state, other.state, complaint)
