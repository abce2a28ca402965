"""The quantities of the paper's analysis on quadratic clients, against numpy and against what the lemmas claim."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from quadratic_clients import (
    LR,
    START,
    K,
    N,
    alphas,
    diagnose,
    global_gradient,
    local_round,
    make_federation,
)

from fedtaco.diagnostics import Diagnoser
from fedtaco.diagnostics.trajectory import trace_client
from fedtaco.errors import InvalidInput
from fedtaco.local_optimizer import Sgd
from fedtaco.methods import METHODS, FedAvg, FedProxTaco, Taco, TacoCorrection, TacoUniform
from fedtaco.records.diagnostics import Diagnostics
from fedtaco.testing import small_federation
from fedtaco.trust import AdversarialClients, parse_behaviour


def taco_rounds(rounds, weigh):
    """Return what TACO does in its first rounds, computed with numpy; ``weigh`` returns p of the new α."""
    w, direction, alpha, done = START, np.zeros(2), np.full(N, 0.1), []
    for _ in range(rounds):
        corrections = [(1 - a) * direction for a in alpha]
        clients = [local_round(i, w, extra=lambda x, c=c: c) for i, c in enumerate(corrections)]
        updates = [client.update for client in clients]
        new_alpha = alphas(updates)
        p = weigh(new_alpha)
        new_direction = sum(a * u for a, u in zip(p, updates, strict=True)) / (K * LR)
        after = w - K * LR * new_direction
        done.append((w, after, direction, new_direction, alpha, new_alpha, p, clients))
        w, direction, alpha = after, new_direction, new_alpha
    return done


def test_every_quantity_of_taco_is_that_of_its_definition():
    expected = taco_rounds(3, weigh=lambda alpha: alpha / alpha.sum())
    found = diagnose(Taco())
    for record, (w, after, last, new, alpha, new_alpha, p, clients) in zip(found, expected, strict=True):
        slope = global_gradient(w)
        assert record.gradient_norm == pytest.approx(np.linalg.norm(slope))
        moved = np.linalg.norm(global_gradient(after) - slope) / np.linalg.norm(after - w)
        assert record.smoothness == pytest.approx(moved)
        assert record.rate_sum == pytest.approx(K * LR)
        assert record.alpha == pytest.approx(alpha.mean())
        assert record.momentum == pytest.approx(p @ (1 - alpha))
        squares = [np.mean([(w - x) @ (w - x) for x in client.points]) for client in clients]
        assert record.mean_square_distance == pytest.approx(np.mean(squares))
        mean_gradient = sum(client.gradients for client in clients) / (N * K * LR)
        residual = new - mean_gradient - (1 - alpha.mean()) * last
        assert record.lemma_1_residual == pytest.approx(np.linalg.norm(residual) / np.linalg.norm(new))
        z = w - (1 - alpha.mean()) * K * LR * last
        new_z = after + (1 - new_alpha.mean()) * (after - w)
        residual = new_z - z + K * LR * mean_gradient
        assert record.lemma_2_residual == pytest.approx(
            np.linalg.norm(residual) / np.linalg.norm(K * LR * mean_gradient)
        )
        mean_update = sum(client.update for client in clients) / N
        for one, client, square in zip(record.clients, clients, squares, strict=True):
            assert one.mu == pytest.approx(slope @ client.update / (slope @ slope))
            cosine = slope @ client.update / np.linalg.norm(slope) / np.linalg.norm(client.update)
            assert one.gradient_cosine == pytest.approx(cosine)
            assert one.norm_ratio == pytest.approx(np.linalg.norm(client.update) / np.linalg.norm(slope))
            assert one.drift == pytest.approx(np.linalg.norm(client.update - mean_update))
            assert one.mean_square_distance == pytest.approx(square)
            ratio = np.linalg.norm(client.correction) / np.linalg.norm(client.gradients)
            assert one.correction_ratio == pytest.approx(ratio)


def test_paper_output_of_taco_is_the_one_in_lemma_2():
    """The diagnoser's z, computed from Δ, is the output that the method itself returns."""
    federation = make_federation(Taco())
    z = START
    for finished in federation.rounds(federation.initial):
        new_z = Taco().output(finished.state.server).numpy()
        clients = taco_rounds(finished.state.round, weigh=lambda alpha: alpha / alpha.sum())[-1][-1]
        step = sum(client.gradients for client in clients) / N
        residual = np.linalg.norm(new_z - z + step) / np.linalg.norm(step)
        assert finished.diagnostics.lemma_2_residual == pytest.approx(residual)
        z = new_z


@pytest.mark.parametrize("method", [TacoUniform(), TacoCorrection()], ids=str)
def test_lemma_1_is_exact_for_uniform_aggregation_and_gain_one(method):
    assert max(record.lemma_1_residual for record in diagnose(method)) < 1e-6


@pytest.mark.parametrize("method", [Taco(), TacoCorrection(gamma=0.1), TacoUniform(delta_scale="literal")], ids=str)
def test_lemma_1_does_not_hold_for_tailored_weights_or_another_gain(method):
    assert max(record.lemma_1_residual for record in diagnose(method)[1:]) > 0.01


def test_lemma_1_does_not_hold_for_tailored_corrections_and_weights_by_samples_either():
    """β is the mean of 1 - α_i with the weights of the aggregate, and not with equal weights."""
    federation = small_federation.make_federation(TacoCorrection(), weighting="samples", clients=unequal_clients())
    diagnosed = make_diagnosed(federation, by_samples=True)
    assert max(record.lemma_1_residual for record in diagnosed[1:]) > 1e-3


def unequal_clients():
    clients = small_federation.skewed_clients()
    return [client.subset(range(3 + 2 * number)) for number, client in enumerate(clients)]


def make_diagnosed(federation, *, by_samples=False, honest=range(small_federation.CLIENTS)):
    federation.clients.honest, federation.clients.by_samples = list(honest), by_samples
    federation.diagnose = federation.clients.make_diagnose()
    return [finished.diagnostics for finished in federation.rounds(federation.initial)]


@pytest.mark.parametrize("options", [{"participation": 0.5}, {"steps": [1, *[K] * (N - 1)]}])
def test_the_residual_of_lemma_2_is_left_out_if_clients_are_absent_or_take_unequal_steps(options):
    federation = make_federation(Taco(), **options)
    for finished in federation.rounds(federation.initial):
        assert finished.diagnostics.lemma_1_residual is not None
        assert finished.diagnostics.lemma_2_residual is None


def test_lemma_2_does_not_follow_from_lemma_1():
    """With Lemma 1, z moves by -η_g Δ~ - η_g (1 - α') Δ', so that the residual is that of the second term."""
    expected = taco_rounds(3, weigh=lambda alpha: np.full(N, 1 / N))
    for record, (_, _, _, new, _, new_alpha, _, clients) in zip(diagnose(TacoCorrection()), expected, strict=True):
        mean_gradient = sum(client.gradients for client in clients) / (N * K * LR)
        second = (1 - new_alpha.mean()) * np.linalg.norm(new) / np.linalg.norm(mean_gradient)
        assert record.lemma_2_residual == pytest.approx(second)
        assert second > 0.1


def test_error_term_depends_on_the_sum_of_the_coefficients_only():
    """Corollary 3 asks for 1 - α_i in proportion to μ_i / c_i; any other coefficients with this sum give the same Y."""
    found = Diagnostics(diagnose(Taco()))
    expected = taco_rounds(3, weigh=lambda alpha: alpha / alpha.sum())
    ratios = np.array([max(record.clients[i].norm_ratio for record in found) for i in range(N)])
    scale = found.smoothness * found.gradient_bound / (K * N**2 * LR)
    for term, (*_, alpha, _, _, _) in zip(found.error_terms, expected, strict=True):
        assert term == pytest.approx((scale * (1 - alpha).sum() * ratios.sum()) ** 2)
        tailored = (1 - alpha).sum() * ratios / ratios.sum()
        assert term == pytest.approx((scale * tailored.sum() * ratios.sum()) ** 2)


def test_constants_of_the_assumptions_hold_in_all_rounds():
    found = Diagnostics(diagnose(FedAvg()))
    assert found.gradient_bound == max(record.gradient_norm for record in found)
    assert found.smoothness == max(record.smoothness for record in found)
    for client, (mu, c) in found.assumption_2.items():
        own = [record.clients[client] for record in found]
        assert mu == max(one.mu for one in own)
        assert c == min(one.gradient_cosine for one in own)
    assert found.error_terms == [None] * 3


def test_methods_without_coefficients_have_no_lemmas():
    for record in diagnose(FedAvg()):
        assert (record.alpha, record.momentum, record.lemma_1_residual, record.lemma_2_residual) == (None,) * 4
    for record in diagnose(FedProxTaco()):
        assert record.alpha is not None
        assert record.lemma_1_residual is None


@pytest.mark.parametrize("momentum", [0.0, 0.9], ids=["sgd", "momentum"])
@pytest.mark.parametrize("name", METHODS)
def test_gradients_and_correction_explain_the_whole_move_of_a_client(name, momentum, monkeypatch):
    method = METHODS.find(name)()
    federation = small_federation.make_federation(method, optimizer=Sgd(momentum=momentum, nesterov=momentum > 0))
    seen = []

    class Notes:
        def __init__(self, *_, **__): ...

        def diagnose(self, training, outcome):
            note(training, outcome)

    def note(training, outcome):
        weights, updates = training.before.server.weights, outcome.results.vectors["update"]
        for job, update in zip(training.jobs, updates, strict=True):
            parts = trace_client(federation.clients.runner, method, training.instructions, job, weights)
            moved = weights - training.instructions.broadcast.start + update + parts.withheld
            seen.append((parts.gradients + parts.correction - moved).norm() / moved.norm())

    monkeypatch.setattr("fedtaco.simulated_clients.Diagnoser", Notes)
    federation.diagnose = federation.clients.make_diagnose()
    list(federation.rounds(federation.initial))
    assert len(seen) == small_federation.CLIENTS * small_federation.ROUNDS
    assert max(seen) < 1e-12


def test_misbehaving_clients_are_not_traced():
    adversaries = AdversarialClients(frozenset([2]), parse_behaviour("zero"), seed=0)
    for record in diagnose(TacoCorrection(), adversaries=adversaries):
        honest, other, forger = record.clients
        assert forger.client == 2
        assert (forger.mean_square_distance, forger.correction_ratio, forger.over_correction) == (None, None, None)
        assert forger.mu == 0
        assert honest.mean_square_distance is not None
        assert other.mean_square_distance is not None
        assert record.lemma_1_residual is record.over_correction is None


def test_diagnosing_changes_no_result():
    finals = []
    for diagnosed in (False, True):
        federation = small_federation.make_federation(Taco())
        if diagnosed:
            make_diagnosed(federation)
        finals.append([one.state.server.weights for one in federation.rounds(federation.initial)][-1])
    assert torch.equal(*finals)


def test_personal_layers_are_refused():
    federation = small_federation.make_federation(FedAvg())
    federation.clients.runner.model.personal_names = frozenset(["bias"])
    with pytest.raises(InvalidInput, match="one model for all clients"):
        Diagnoser(FedAvg(), federation.clients.runner, range(5), by_samples=False)
