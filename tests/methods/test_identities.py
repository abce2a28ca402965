"""Methods that equal FedAvg, or another method, for certain parameters, with the same seed and batches."""

from __future__ import annotations

import pytest
import torch

import fedtaco
from fedtaco.errors import InvalidInput
from fedtaco.local_optimizer import AdamW, Sgd
from fedtaco.lr_schedule import CosineDecay
from fedtaco.methods import (
    AveragedMemory,
    FedACG,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedCM,
    FedComGate,
    FedDC,
    FedDyn,
    FedExP,
    FedMoS,
    FedNova,
    FedProx,
    FedProxTaco,
    FedYogi,
    LocalContext,
    Mime,
    MimeLite,
    Scaffold,
    ScaffoldM,
    ScaffoldTaco,
    Stem,
    StemOriginal,
    Taco,
    TacoCorrection,
    TacoSteady,
    TacoSteadyUniform,
    TacoUniform,
)
from fedtaco.testing import LOCAL_LR, final_state, make_federation
from fedtaco.testing.small_federation import SAMPLES, constants, run_rounds, skewed_clients

TAU = 2.0**-10
SWITCHED_OFF = [
    FedProx(zeta=0.0),
    FedProxTaco(zeta=0.0),
    Scaffold(alpha=0.0),
    ScaffoldTaco(alpha=0.0),
    Stem(alpha=1.0, server_momentum="off"),
    StemOriginal(alpha=1.0),
    FedACG(momentum=0.0, beta=0.0),
    TacoCorrection(gamma=0.0),
    TacoUniform(gamma=0.0),
    TacoSteady(alpha_min=1.0, power=1e30),
    TacoSteadyUniform(alpha_min=1.0, power=1e30),
    FedCM(alpha=1.0),
    FedAvgM(momentum=0.0),
    FedMoS(a=1.0, mu=0.0, beta=0.0),
    FedMoS(a=1.0, mu=0.0, beta=0.0, last_gradient="same-batch"),
    MimeLite(beta=0.0),
    FedExP(epsilon=1e30),
    FedAdam(beta1=0.0, beta2=1.0, tau=TAU, eta=2 * TAU),
    FedYogi(beta1=0.0, beta2=1.0, tau=TAU, eta=2 * TAU),
]


def assert_same_weights(one, other, **options):
    first, second = (final_state(method, **options).server.weights for method in (one, other))
    torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize("method", [*SWITCHED_OFF, FedNova()], ids=str)
def test_method_without_its_correction_is_fedavg(method, participation):
    assert_same_weights(method, FedAvg(), participation=participation)


@pytest.mark.parametrize(
    "optimizer",
    [Sgd(momentum=0.9, weight_decay=0.1), Sgd(momentum=0.9, nesterov=True, clip_norm=0.5), AdamW(weight_decay=0.1)],
    ids=lambda optimizer: type(optimizer).__name__,
)
@pytest.mark.parametrize("method", SWITCHED_OFF, ids=lambda method: method.name)
def test_method_without_its_correction_is_fedavg_with_the_same_optimizer(method, optimizer):
    if optimizer.transforms_gradients and method.cost.gradients > 1:
        pytest.skip(f"{method.name} computes several gradients per step")
    options = {"optimizer": optimizer, "lr_schedule": CosineDecay()}
    fedavg = final_state(FedAvg(), **options).server.weights
    torch.testing.assert_close(final_state(method, **options).server.weights, fedavg, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(fedavg, final_state(FedAvg()).server.weights, rtol=1e-3)


def test_method_with_its_correction_is_not_fedavg():
    fedavg = final_state(FedAvg()).server.weights
    for method in SWITCHED_OFF:
        assert not torch.allclose(final_state(type(method)()).server.weights, fedavg, rtol=1e-6)


def test_fednova_with_unequal_steps_is_not_fedavg():
    fedavg, fednova = (final_state(method, steps=[1, 2, 3, 4, 5]).server.weights for method in (FedAvg(), FedNova()))
    assert not torch.allclose(fednova, fedavg, rtol=1e-6)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_fedadam_with_a_constant_second_moment_is_fedavgm(weighting):
    adam = FedAdam(beta1=0.6, beta2=1.0, tau=TAU, eta=2 * TAU / 0.4)
    assert_same_weights(adam, FedAvgM(momentum=0.6), weighting=weighting)


@pytest.mark.parametrize("options", [{}, {"participation": 0.4}, {"steps": [1, 2, 3, 4, 5]}], ids=str)
def test_scaffold_m_without_momentum_is_scaffold(options):
    one, other = (final_state(method, **options) for method in (ScaffoldM(beta=1.0), Scaffold()))
    torch.testing.assert_close(one.server.weights, other.server.weights, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(one.server.memory["variate"], other.server.memory["variate"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"steps": [1, 2, 3, 4, 5]}, {"optimizer": Sgd(momentum=0.9)}], ids=str)
def test_fedcomgate_is_scaffold_step_for_step(options):
    """Without compression, with all clients and uniform weights; δ_i is c_i - c."""
    pairs = list(zip(*(_states(method, **options) for method in (FedComGate(), Scaffold())), strict=True))
    for gate, scaffold in pairs:
        torch.testing.assert_close(gate.server.weights, scaffold.server.weights, rtol=1e-12, atol=1e-12)
        if "steps" not in options:
            for client in range(5):
                delta = gate.memories[client]["directions"] - gate.server.memory["directions"]
                variate = scaffold.memories[client]["variate"] - scaffold.server.memory["variate"]
                torch.testing.assert_close(delta, variate, rtol=1e-10, atol=1e-12)
    assert len(pairs) == 4
    assert not torch.allclose(gate.server.weights, final_state(FedAvg(), **options).server.weights, rtol=1e-6)


def _states(method, **options):
    federation = make_federation(method, **options)
    return [finished.state for finished in run_rounds(federation, federation.initial)]


def test_fedcomgate_needs_all_clients():
    with pytest.raises(InvalidInput, match=r"participation is 0.4, but fedcomgate needs all clients; set it to 1\."):
        make_federation(FedComGate(), participation=0.4)
    for absence in ({"client_dropout": 0.5}, {"deadline": 1.0}):
        with pytest.raises(InvalidInput, match="fedcomgate needs all clients in every round; omit client_dropout"):
            fedtaco.run("fedcomgate", dataset="digits", **absence)


class Frozen(AveragedMemory):
    """A mixin for methods some of whose averaged vectors remain zero, on the server and on the clients."""

    frozen = ()

    def add_changes(self, server, uploads, **totals):
        kept = {name: total for name, total in totals.items() if name not in self.frozen}
        return super().add_changes(server, uploads, **kept)

    def mirror(self, upload, local):
        return {**super().mirror(upload, local), **{name: local.memory[name] for name in self.frozen}}


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_scaffold_m_without_variates_is_fedcm(participation):
    class WithoutVariates(Frozen, ScaffoldM):
        frozen = ("variate",)

    assert_same_weights(WithoutVariates(beta=0.3), FedCM(alpha=0.3), participation=participation)


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_feddyn_without_duals_is_fedprox(participation):
    class WithoutDuals(Frozen, FedDyn):
        frozen = ("displacement",)

    assert_same_weights(WithoutDuals(a=0.7), FedProx(zeta=0.7), participation=participation)


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_feddc_without_its_gradient_correction_is_feddyn(participation):
    class WithoutCorrection(Frozen, FedDC):
        frozen = ("direction",)

    assert_same_weights(WithoutCorrection(a=0.7), FedDyn(a=0.7), participation=participation)


def test_feddc_without_a_pull_steps_as_scaffold():
    start, c, own, g = torch.randn(4, 6, dtype=torch.float64)

    def step(method, name):
        memory = {name: own, "displacement": torch.ones_like(own)}
        local = LocalContext(constants(), start, {name: c}, memory, 3, lambda x: g + x, lambda x: g + x)
        local.correction = method.correction(local)
        return method.direction(start + 1, local)

    torch.testing.assert_close(step(FedDC(a=0.0), "direction"), step(Scaffold(), "variate"))


def test_the_first_round_of_feddyn_moves_the_starting_point_twice_as_far_as_the_mean_update():
    federation = make_federation(FedDyn(a=0.5))
    start = federation.initial
    (first,) = run_rounds(federation, start, 1)
    weights, after = start.server.weights, first.state.server
    torch.testing.assert_close(weights - federation.server.method.output(after), 2 * (weights - after.weights))


def test_fedmos_on_the_same_batch_without_pull_and_server_momentum_is_stem():
    fedmos = FedMoS(a=0.3, mu=0.0, beta=0.0, last_gradient="same-batch")
    assert_same_weights(fedmos, Stem(alpha=0.3, server_momentum="off"))


def test_fedmos_with_stored_gradients_adds_a_fading_part_of_the_first_gradient():
    """d_k = g_k + (1 - a)^k g_0 for k > 0, because d_k - g_k shrinks by 1 - a in every step."""
    gradients, method = torch.randn(5, 3, dtype=torch.float64), FedMoS(a=0.3, mu=0.0)
    local = LocalContext(constants(), torch.zeros(3), {}, {}, 5, lambda x: gradients[local.step].clone(), torch.clone)
    for local.step in range(5):
        extra = 0.7**local.step * gradients[0] if local.step else 0
        torch.testing.assert_close(method.direction(torch.zeros(3), local), gradients[local.step] + extra)


def test_rounds_do_not_matter_to_stem_original_with_one_client():
    """Two rounds of two steps are one round of four, because momentum and the last point continue."""
    options = {"clients": skewed_clients()[:1], "batch_size": SAMPLES}
    ends = []
    for steps, rounds in ((1, 4), (2, 2), (4, 1)):
        federation = make_federation(StemOriginal(alpha=0.3), steps=[steps], **options)
        ends.append(run_rounds(federation, federation.initial, rounds)[-1].state.server.weights)
    torch.testing.assert_close(ends[0], ends[2], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ends[1], ends[2], rtol=1e-12, atol=1e-12)


def test_mime_with_one_step_is_sgd_with_momentum_on_the_full_gradient():
    federation = make_federation(Mime(beta=0.6), steps=[1] * 5)
    state = federation.initial
    weights, momentum = state.server.weights, torch.zeros_like(state.server.weights)
    for finished in federation.rounds(state):
        gradients = [
            federation.model.gradient(weights, (samples.x, samples.y), federation.clients.runner.config.loss, 0)
            for samples in federation.clients.runner.clients.values()
        ]
        momentum = 0.4 * torch.stack(gradients).mean(0) + 0.6 * momentum
        weights = weights - LOCAL_LR * momentum
        torch.testing.assert_close(finished.state.server.weights, weights, rtol=1e-12, atol=1e-12)


def test_mime_with_equal_clients_and_full_batches_is_mime_lite():
    """Then g(w) = c, so that the correction of a gradient vanishes."""
    options = {"clients": [skewed_clients()[0]] * 3, "batch_size": SAMPLES}
    assert_same_weights(Mime(), MimeLite(), **options)


def test_fedexp_of_equal_clients_is_fedavg():
    assert_same_weights(FedExP(epsilon=0.0), FedAvg(), clients=[skewed_clients()[0]] * 3, batch_size=SAMPLES)


@pytest.mark.parametrize("method", [Taco, TacoCorrection, TacoUniform])
def test_literal_gamma_1_equals_accumulated_gamma_1_over_k(method):
    literal = final_state(method(delta_scale="literal", gamma=1.0)).server.weights
    assert torch.equal(literal, final_state(method()).server.weights)
    torch.testing.assert_close(final_state(method(gamma=1 / 3)).server.weights, literal)


@pytest.mark.parametrize("steps", [49, 98, 103])
def test_default_gain_is_exactly_one(steps):
    assert Taco().gain(steps) == 1.0
    assert Taco(gamma=1 / steps).gain(steps) != 1.0
