"""The contract of detectors: one function per rule, whose docstring states the rule."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from fedtaco.data import TensorSamples
from fedtaco.errors import RunStopped
from fedtaco.methods import Taco
from fedtaco.run_state import FinishedRound, RunState
from fedtaco.testing.checks import assert_same, run_checks
from fedtaco.testing.engines import ReversedEngine, through_bytes
from fedtaco.testing.small_federation import CLIENTS, FEATURES, SAMPLES, make_federation, skewed_clients
from fedtaco.trust import AdversarialClients, Detector
from fedtaco.trust.behaviours.freeloaders import Zero

RECORD = ("strikes", "seen")
"""What the memory of every detector contains, with one entry per client."""


def check_detector(detector: Detector) -> None:
    """Check that a detector fulfils the contract of detectors.

    Parameters
    ----------
    detector
        The detector to check, with the parameters it is to be checked with.

    Raises
    ------
    AssertionError
        If the detector breaks a rule; the message explains the first one.

    Examples
    --------
    >>> from fedtaco.trust import PaperDetector
    >>> check_detector(PaperDetector(kappa=0.7))
    """
    run_checks(DETECTOR_CONTRACT, detector)


def memory_is_plain_data(detector: Detector) -> None:
    """The memory keeps its names; ``strikes`` and ``seen`` are among them, with one entry per client."""
    before = make_federation(Taco(), detector=detector).initial.detector_memory
    for name in RECORD:
        assert name in before, f"{detector.name}: initial_memory has no '{name}'"
        assert before[name].shape == (CLIENTS,), f"{detector.name}: '{name}' needs one entry per client"
    for finished in _rounds(detector):
        after = finished.state.detector_memory
        assert set(after) == set(before), f"{detector.name}: the memory's names change from round to round"


def runs_are_reproducible(detector: Detector) -> None:
    """Neither a second run nor the order in which clients are run changes a decision."""
    first = _rounds(detector)
    for other in (_rounds(detector), _rounds(detector, engine=ReversedEngine)):
        _assert_same_decisions(first, other, f"{detector.name}: two runs differ")


def numbering_of_clients_does_not_matter(detector: Detector) -> None:
    """Renumbering the clients renumbers what the detector remembers of them and changes nothing else."""
    rotated = [*range(1, CLIENTS), 0]
    clients = [skewed_clients()[client] for client in rotated]
    plain, renumbered = (_rounds(detector, batch_size=SAMPLES, clients=own) for own in (skewed_clients(), clients))
    for one, other in zip(plain, renumbered, strict=True):
        for name in RECORD:
            same = torch.equal(one.state.detector_memory[name][rotated], other.state.detector_memory[name])
            assert same, f"{detector.name}: the numbering of clients changes '{name}'"


def decisions_survive_saving(detector: Detector) -> None:
    """A run that is stopped, saved as bytes, loaded and continued makes the decisions of an uninterrupted one."""
    first, *rest = _rounds(detector)
    assert rest, f"{detector.name}: no round follows the first"
    state = first.state
    memory, baseline = (through_bytes(named) for named in (state.detector_memory, state.baseline))
    loaded = replace(state, detector_memory=memory, baseline=baseline)
    _assert_same_decisions(rest, _rounds(detector, loaded), f"{detector.name}: a resumed run differs")


def expelled_clients_stay_out(detector: Detector) -> None:
    """An expelled client takes part in no further round, and every dropped upload has a decision with a reason."""
    expelled: set[int] = set()
    freeloaders = AdversarialClients(frozenset({1}), Zero(), seed=0)
    for finished in _rounds(detector, adversaries=freeloaders):
        cohort = {record.client for record in finished.clients}
        assert not cohort & expelled, f"{detector.name}: an expelled client took part in a later round"
        for decision in finished.record.decisions:
            assert decision.reason, f"{detector.name}: a decision has no reason"
        decided = {decision.client for decision in finished.record.decisions}
        assert set(finished.record.dropped) <= decided, f"{detector.name}: an upload was dropped without a decision"
        expelled |= set(torch.nonzero(finished.state.expelled).flatten().tolist())


def few_clients_work(detector: Detector) -> None:
    """Runs with one client, with two clients and with partial participation work."""
    for options in ({"clients": skewed_clients()[:1]}, {"clients": skewed_clients()[:2]}, {"participation": 0.4}):
        weights = _rounds(detector, **options)[-1].state.server.weights
        assert torch.isfinite(weights).all(), f"{detector.name}: the model is not finite"


def broken_uploads_are_never_judged(detector: Detector) -> None:
    """An upload that is not finite is dropped before the detector sees it."""
    clients = skewed_clients()
    clients[2] = TensorSamples(torch.full((SAMPLES, FEATURES), torch.nan, dtype=torch.float64), clients[2].y)
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
    """Return the rounds of a run, which ends early if all clients are expelled."""
    federation, finished_rounds = make_federation(Taco(), detector=detector, **options), []
    with suppress(RunStopped):
        for finished in federation.rounds(state or federation.initial):
            finished_rounds.append(finished)
    return finished_rounds


def _assert_same_decisions(first: list[FinishedRound], second: list[FinishedRound], complaint: str) -> None:
    for one, other in zip(first, second, strict=True):
        assert one.record.decisions == other.record.decisions, f"{complaint} (decisions of round {one.record.round})"
        assert_same(one.state, other.state, complaint)
