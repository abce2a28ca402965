"""The contract of detectors: one function per rule, whose docstring says what must hold."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from fedtaco.data import TensorSamples
from fedtaco.errors import RunStopped
from fedtaco.methods import Taco
from fedtaco.server import FinishedRound, RunState
from fedtaco.testing.checks import assert_same, run_checks
from fedtaco.testing.engines import ReversedEngine, through_bytes
from fedtaco.testing.small import CLIENTS, SAMPLES, make_simulator, skewed_clients
from fedtaco.trust import AdversarialClients, Detector
from fedtaco.trust.behaviours.freeloaders import Zero

RECORD = ("strikes", "seen", "expelled")


def check_detector(detector: Detector) -> None:
    """Check a detector against the whole contract.

    Raises
    ------
    AssertionError
        With a sentence about the first rule that the detector breaks.
    """
    run_checks(DETECTOR_CONTRACT, detector)


def memory_is_plain_data(detector: Detector) -> None:
    """The memory is named tensors with ``strikes``, ``seen`` and ``expelled`` per client, and keeps its names."""
    before = make_simulator(Taco(), detector=detector).initial_state().trust
    for name in RECORD:
        assert name in before, f"{detector.name}: initial_memory has no '{name}'"
        assert before[name].shape == (CLIENTS,), f"{detector.name}: '{name}' needs one entry per client"
    for finished in _rounds(detector):
        after = finished.state.trust
        assert set(after) == set(before), f"{detector.name}: the memory's names change from round to round"


def runs_are_reproducible(detector: Detector) -> None:
    """Neither a second run nor the order in which clients are run changes a decision."""
    first = _rounds(detector)
    for other in (_rounds(detector), _rounds(detector, engine=ReversedEngine)):
        _assert_same_decisions(first, other, f"{detector.name}: two runs differ")


def numbering_of_clients_does_not_matter(detector: Detector) -> None:
    """Renumbering the clients renumbers what the detector remembers of them and changes nothing else."""
    turned = [*range(1, CLIENTS), 0]
    clients = [skewed_clients()[client] for client in turned]
    plain, renumbered = (_rounds(detector, batch_size=SAMPLES, clients=own) for own in (skewed_clients(), clients))
    for one, other in zip(plain, renumbered, strict=True):
        for name in RECORD:
            same = torch.equal(one.state.trust[name][turned], other.state.trust[name])
            assert same, f"{detector.name}: the numbering of clients changes '{name}'"


def decisions_survive_saving(detector: Detector) -> None:
    """A run that is stopped, saved as bytes, loaded and continued decides as an uninterrupted one."""
    first, *rest = _rounds(detector)
    state = first.state
    loaded = RunState(state.round, state.server, state.buffers, state.memories, through_bytes(state.trust))
    _assert_same_decisions(rest, _rounds(detector, loaded), f"{detector.name}: a resumed run differs")


def expelled_clients_stay_out(detector: Detector) -> None:
    """A client that was expelled is never asked again, and what is dropped has a reason."""
    expelled: set[int] = set()
    freeloaders = AdversarialClients(frozenset({1}), Zero(), seed=0)
    for finished in _rounds(detector, adversaries=freeloaders):
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
        (broken,) = (record for record in finished.clients if record.client == 2)
        assert broken.scores == {}, f"{detector.name}: a broken upload was judged"


DETECTOR_CONTRACT: tuple[Callable[[Detector], None], ...] = (
    memory_is_plain_data,
    runs_are_reproducible,
    numbering_of_clients_does_not_matter,
    decisions_survive_saving,
    expelled_clients_stay_out,
    few_clients_work,
    broken_uploads_are_never_judged,
)


def _rounds(detector: Detector, state: RunState | None = None, **options: Any) -> list[FinishedRound]:
    """Return the rounds of a run, up to one in which no client is left."""
    simulator, finished_rounds = make_simulator(Taco(), detector=detector, **options), []
    with suppress(RunStopped):
        for finished in simulator.rounds(state or simulator.initial_state()):
            finished_rounds.append(finished)
    return finished_rounds


def _assert_same_decisions(first: list[FinishedRound], second: list[FinishedRound], complaint: str) -> None:
    for one, other in zip(first, second, strict=True):
        assert one.record.decisions == other.record.decisions, f"{complaint} (decisions of round {one.record.round})"
        assert_same(one.state, other.state, complaint)
