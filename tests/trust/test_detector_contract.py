"""Every registered detector, and a user's own, fulfil the detector contract; broken ones are explained."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from own_detector import DropsZeros

import fedtaco
from fedtaco import InvalidInput
from fedtaco.records import RunFolder
from fedtaco.testing import DETECTOR_CONTRACT, check_detector
from fedtaco.trust import DETECTORS, Guard, PaperDetector

SETTINGS = {"dataset": "digits", "clients": 6, "rounds": 3, "local_steps": 2, "freeloaders": 2, "behaviour": "zero"}


@pytest.mark.parametrize("check", DETECTOR_CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "detector",
    [
        *(cls() for cls in DETECTORS.values()),
        PaperDetector(kappa=0.3, max_strikes=1),
        Guard(max_strikes=1),
        DropsZeros(),
    ],
    ids=str,
)
def test_detector_fulfils_the_contract(detector, check):
    check(detector)


# Detectors that break one rule each


@dataclass(frozen=True)
class ForgetsSeen(DropsZeros):
    name = "forgets-seen"

    def judge(self, memory, given):
        verdict = super().judge({"seen": memory["strikes"], **memory}, given)
        return dataclasses.replace(verdict, memory={"strikes": verdict.memory["strikes"]})


@dataclass(frozen=True)
class NeverHadSeen(DropsZeros):
    name = "never-had-seen"

    def initial_memory(self, weights, constants):
        memory = super().initial_memory(weights, constants)
        return {"strikes": memory["strikes"]}


@dataclass(frozen=True)
class MemoryPerUpload(DropsZeros):
    name = "memory-per-upload"

    def initial_memory(self, weights, constants):
        return {**super().initial_memory(weights, constants), "strikes": torch.zeros(2, dtype=torch.int64)}


@dataclass(frozen=True)
class DropsWithoutDecision(DropsZeros):
    name = "drops-without-decision"

    def judge(self, memory, given):
        return dataclasses.replace(super().judge(memory, given), decisions=[])


@dataclass(frozen=True)
class DropsWithoutReason(DropsZeros):
    name = "drops-without-reason"

    def judge(self, memory, given):
        verdict = super().judge(memory, given)
        return dataclasses.replace(
            verdict, decisions=[dataclasses.replace(decision, reason="") for decision in verdict.decisions]
        )


def shortest(given):
    """Return a mask of the shortest upload, if there are several."""
    norms = given.uploads.geometry.norms
    return (norms == norms.min()) & (len(norms) > 1)


@dataclass(frozen=True)
class RemembersOutsideItsMemory(DropsZeros):
    """Drops the shortest upload of the third round, and counts rounds in a list that no checkpoint contains."""

    name = "remembers-outside"
    rounds: ClassVar[list[int]] = []

    def initial_memory(self, weights, constants):
        self.rounds.clear()
        return super().initial_memory(weights, constants)

    def suspects(self, memory, given):
        self.rounds.append(given.round)
        return shortest(given) & (len(self.rounds) == 3)


@dataclass(frozen=True)
class ChangesMemoryInPlace(DropsZeros):
    """Counts rounds in the memory it is given, of which a resumed run has an earlier copy."""

    name = "changes-memory"

    def suspects(self, memory, given):
        memory["seen"].add_(1)
        return shortest(given) & (memory["seen"].max() % 2 == 0)


@dataclass(frozen=True)
class DiffersBetweenRuns(DropsZeros):
    """Drops the shortest upload of every sixth round that it judges, counted over all runs."""

    name = "differs-between-runs"
    rounds: ClassVar[list[int]] = []

    def suspects(self, memory, given):
        self.rounds.append(given.round)
        return shortest(given) & (len(self.rounds) % 6 == 0)


@dataclass(frozen=True)
class JudgesByClientOrder(DropsZeros):
    name = "judges-by-order"

    def suspects(self, memory, given):
        count = len(given.uploads.clients)
        return (torch.arange(count) == 0) & (count > 1)


@dataclass(frozen=True)
class TakesTheMatrix(DropsZeros):
    name = "takes-the-matrix"

    def suspects(self, memory, given):
        return given.uploads.vectors["update"].norm(dim=1) == 0


@dataclass(frozen=True)
class RaisesAnError(DropsZeros):
    name = "raises-an-error"

    def judge(self, memory, given):
        raise ZeroDivisionError("no uploads")


@pytest.mark.parametrize(
    ("detector", "message"),
    [
        (ForgetsSeen(), "forgets-seen: the memory's names change from round to round"),
        (NeverHadSeen(), "never-had-seen: initial_memory has no 'seen'"),
        (MemoryPerUpload(), "memory-per-upload: 'strikes' needs one entry per client"),
        (DropsWithoutDecision(), "drops-without-decision: an upload was dropped without a decision"),
        (DropsWithoutReason(), "drops-without-reason: a decision has no reason"),
        (RemembersOutsideItsMemory(), "remembers-outside: a resumed run differs"),
        (ChangesMemoryInPlace(), "changes-memory: a resumed run differs"),
        (DiffersBetweenRuns(), "differs-between-runs: two runs differ"),
        (JudgesByClientOrder(), "judges-by-order: the numbering of clients changes"),
        (TakesTheMatrix(), r"takes-the-matrix .* no whole matrix; call uploads.average\(name\), or total"),
        (RaisesAnError(), "raises-an-error fails '.*' with ZeroDivisionError: no uploads"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_broken_detectors_are_explained(detector, message):
    with pytest.raises(AssertionError, match=message):
        check_detector(detector)


# A user's detector by its import path


def expelled_clients(folder):
    return {record.client for record in folder.history().clients if record.expelled}


@pytest.mark.parametrize(("max_strikes", "round_expelled"), [(1, 1), (3, 3)])
def test_own_detector_in_python(max_strikes, round_expelled, tmp_path):
    parameters = {"drops-zeros.max_strikes": max_strikes}
    result = fedtaco.run("fedavg", out=tmp_path, detector="own_detector:DropsZeros", parameters=parameters, **SETTINGS)
    folder = RunFolder(tmp_path)
    bound = {"drops-zeros.max_norm": 5.0, "drops-zeros.long_uploads": "drop"}
    assert folder.config()["parameters"] == {**bound, **parameters}
    freeloaders = set(folder.partition().freeloaders)
    assert expelled_clients(folder) == freeloaders
    assert {record.round for record in result.history.clients if record.expelled} == {round_expelled}
    assert all(set(record.dropped) == freeloaders for record in result.history[:round_expelled])
    assert {record.scores["zero"] for record in result.history.clients} == {0.0, 1.0}


def test_own_detector_on_the_command_line(cli, tmp_path):
    options = [part for name, value in SETTINGS.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    own = ["--detector", "own_detector:DropsZeros", "--set", "drops-zeros.max_strikes=1"]
    done = cli("run", *options, *own, "--out", "run", "--format", "json")
    assert done.returncode == 0, done.stderr
    (summary,) = json.loads(done.stdout)["runs"]
    assert (summary["detection"]["caught"], summary["detection"]["honest_expelled"]) == (2, 0)
    folder = RunFolder(tmp_path / "run")
    assert folder.config()["detector"] == "own_detector:DropsZeros"
    assert folder.config()["parameters"]["drops-zeros.max_strikes"] == 1
    assert expelled_clients(folder) == set(folder.partition().freeloaders)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"drops-zeros.max_strikes": 0}, r"drops-zeros\.max_strikes is 0; it must be a whole number at least 1"),
        ({"drops-zeros.max_strike": 1}, "did you mean 'drops-zeros.max_strikes'"),
        ({"guard.copy": 0.1}, r"guard\.copy has no effect: it belongs to the detector guard, which is not used"),
    ],
)
def test_invalid_parameters_of_an_own_detector_are_explained(parameters, message):
    with pytest.raises(InvalidInput, match=message):
        fedtaco.run("fedavg", detector="own_detector:DropsZeros", parameters=parameters, **SETTINGS)
