"""Every method with every codec: the same bits in all engines, and memories that server and clients agree on."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from sketches import Rounded

from fedtaco.codecs import CODECS, NO_CODEC, Q8, RandK, Sign, TopK
from fedtaco.compression import RESIDUAL
from fedtaco.errors import InvalidInput
from fedtaco.methods import METHODS, AveragedMemory, FedAvg, FedDC, Scaffold, Stem, StemOriginal, Taco
from fedtaco.settings.combinations import check_compression
from fedtaco.testing.checks import assert_same, named_tensors
from fedtaco.testing.engines import one_stack, two_workers
from fedtaco.testing.small_federation import CLIENTS, final_state, make_federation, run_rounds, skewed_clients
from fedtaco.trust import NormDetector

SUBJECTS = [*(cls() for cls in CODECS.values()), RandK(0.75), Rounded()]
REFUSED = {
    "scaffold": ["randk:0.1"],
    "scaffold-taco": ["randk:0.1"],
    "scaffold-m": ["randk:0.1"],
    "feddc": ["randk:0.1"],
    "fedcomgate": ["randk:0.1"],
    **{name: ["topk:0.1", "sign", "sketch-rounded"] for name in ("mime", "fedexp", "ruan")},
}
"""The codecs that each method cannot use."""


def is_refused(method, codec):
    return str(codec) in REFUSED.get(method.name, [])


@pytest.mark.parametrize("codec", SUBJECTS, ids=str)
@pytest.mark.parametrize("method", [cls() for cls in METHODS.values()], ids=lambda method: method.name)
def test_every_method_with_every_codec(method, codec):
    if is_refused(method, codec):
        with pytest.raises(InvalidInput, match=rf"compress is '{codec}', which .* {method.name}.*; use q8 or q4\."):
            check_compression(method, codec)
        return
    options = {"participation": 1.0 if method.needs_all_clients else 0.6, "steps": [1, 3, 2, 3, 2]}
    serial = final_state(method, codec=codec, **options)
    for name, tensor in named_tensors(serial):
        assert torch.isfinite(tensor).all(), name
    if isinstance(codec, Q8):  # codecs run in the main process, so that one of them is enough
        pooled = final_state(method, codec=codec, engine=two_workers, **options)
        assert_same(serial, pooled, "worker processes change the result")
    if isinstance(method, AveragedMemory):
        for name in method.averaged:
            mean = sum(memory[name] for memory in serial.memories.values()) / CLIENTS
            assert torch.allclose(serial.server.memory[name], mean, rtol=1e-12, atol=1e-14), name


@pytest.mark.parametrize("method", [cls() for cls in METHODS.values()], ids=lambda method: method.name)
def test_stacked_clients_agree_under_compression(method):
    """Levels depend on roundings, so that engines agree only if nothing is near a threshold; signs are not here."""
    stacked, serial = (final_state(method, codec=Q8(), engine=engine) for engine in (one_stack, two_workers))
    assert torch.allclose(stacked.server.weights, serial.server.weights, rtol=1e-9, atol=1e-12)


def test_without_a_codec_nothing_changes():
    for method in (Taco(), Scaffold()):
        assert_same(final_state(method), final_state(method, codec=NO_CODEC), "no codec changes the result")
        assert not torch.equal(final_state(method).server.weights, final_state(method, codec=Q8()).server.weights)


def rounds_of(method, codec, **options):
    federation = make_federation(method, codec=codec, **options)
    return run_rounds(federation, federation.initial)


class RecordingEngine:
    """Keeps the uploads as the clients computed them, by round."""

    def __init__(self, engine):
        self.engine, self.raw = engine, []

    def run(self, method, instructions, jobs, memories):
        assert not any(name.startswith(RESIDUAL) for job in jobs for name in job.memory)
        results = self.engine.run(method, instructions, jobs, memories)
        self.raw.append({name: rows.clone() for name, rows in results.vectors.items()})
        return results


@pytest.mark.parametrize("codec", [TopK(0.2), Sign(), Rounded()], ids=str)
def test_error_feedback_sends_everything_in_the_end(codec, monkeypatch):
    """What is used, summed over rounds, and the residual are the sum of all updates."""
    federation = make_federation(FedAvg(), codec=codec)
    recording = federation.clients.adversaries = RecordingEngine(federation.clients.adversaries)
    used, conclude = [], federation.server.conclude

    def conclude_and_keep(state, instructions, results, *more):
        used.append(results.vectors["update"].clone())
        return conclude(state, instructions, results, *more)

    monkeypatch.setattr(type(federation.server), "conclude", staticmethod(conclude_and_keep))
    final = run_rounds(federation, federation.initial)[-1].state
    residuals = torch.stack([final.memories[client][f"{RESIDUAL}update"] for client in range(CLIENTS)])
    assert residuals.abs().max() > 1e-4
    wanted = sum(raw["update"] for raw in recording.raw)
    assert torch.allclose(sum(used) + residuals, wanted, rtol=1e-12, atol=1e-14)


def test_each_vector_has_a_residual_but_estimates_have_none():
    residuals = {
        type(method): sorted(name for name in final_state(method, codec=Sign()).memories[0] if "/" in name)
        for method in (FedAvg(), Stem(), Scaffold(), FedDC())
    }
    assert residuals[FedAvg] == ["residual/update"]
    assert residuals[Stem] == ["residual/momentum", "residual/update"]
    assert residuals[Scaffold] == ["residual/update"]
    assert residuals[FedDC] == []
    assert not any("/" in name for name in final_state(Scaffold(), codec=Q8()).memories[0])


def test_residuals_of_absent_clients_are_kept():
    finished = rounds_of(FedAvg(), TopK(0.2), participation=0.4)
    for before, after in pairwise(finished):
        present = {record.client for record in after.clients}
        for client, memory in before.state.memories.items():
            same = torch.equal(memory["residual/update"], after.state.memories[client]["residual/update"])
            assert same == (client not in present)


def test_the_residual_of_an_unused_upload_is_rolled_back():
    """A detector drops the upload of one client in the second round; its residual stays that of the first."""
    federation = make_federation(FedAvg(), codec=TopK(0.2), detector=NormDetector())
    engine = federation.clients.adversaries

    class Boosting:
        def run(self, method, instructions, jobs, memories):
            results = engine.run(method, instructions, jobs, memories)
            if instructions.round == 2:
                results.vectors["update"][3] *= 1000
            return results

    federation.clients.adversaries = Boosting()
    first, second, *_ = run_rounds(federation, federation.initial)
    assert list(second.record.dropped) == [3]
    for client in range(CLIENTS):
        kept = torch.equal(
            first.state.memories[client]["residual/update"], second.state.memories[client]["residual/update"]
        )
        assert kept == (client == 3)


def test_memories_that_do_not_follow_from_the_upload_are_kept():
    """STEM's last point is known to the client alone; ``mirror`` does not return it."""
    memories = final_state(StemOriginal(), codec=Q8()).memories
    assert all(memory["seen"] == 1 and memory["point"].any() for memory in memories.values())


def test_compression_does_not_depend_on_who_else_takes_part():
    """Client 0 sends the same payload whether the cohort has five clients or two."""
    all_of_them, two = (
        rounds_of(FedAvg(), Q8(), clients=None if count == CLIENTS else skewed_clients()[:count])
        for count in (CLIENTS, 2)
    )
    assert all_of_them[0].clients[0].quantities["norm"] == two[0].clients[0].quantities["norm"]


def test_the_time_of_compression_counts_as_the_clients(monkeypatch):
    federation = make_federation(FedAvg(), codec=Q8())
    monkeypatch.setattr("fedtaco.compression.perf_counter", iter(range(1000)).__next__)
    (first, *_) = run_rounds(federation, federation.initial, 1)
    assert all(record.seconds is not None and record.seconds > 1 for record in first.clients)


def test_bytes_are_counted_in_every_phase():
    """15 float64 numbers: 120 bytes down per vector; q8 sends 15 levels and a scale of 8 bytes."""
    expected = {"fedavg": (120, 23), "scaffold": (240, 46), "taco": (240 + 8, 23), "mime": (360, 46)}
    for name, (down, up) in expected.items():
        finished = rounds_of(METHODS[name](), Q8())
        for one in finished:
            assert (one.record.bytes_down, one.record.bytes_up) == (CLIENTS * down, CLIENTS * up), name
            assert one.record.wire_bytes_up is None


def test_a_vector_that_is_not_finite_is_dropped_although_the_codec_does_not_look_there():
    federation = make_federation(FedAvg(), codec=RandK(0.1))
    engine = federation.clients.adversaries

    class Breaking:
        def run(self, method, instructions, jobs, memories):
            results = engine.run(method, instructions, jobs, memories)
            results.vectors["update"][2, 0] = torch.nan
            return results

    federation.clients.adversaries = Breaking()
    for finished in run_rounds(federation, federation.initial):
        assert finished.record.dropped == {2: "the upload is not finite"}
