"""The contract, one function a rule; its docstring says what must hold."""

from __future__ import annotations

import difflib
from collections.abc import Callable

import torch
from torch import Tensor

from fedtaco.data import TensorSamples
from fedtaco.methods import Broadcast, Local, Memory, Method, Server
from fedtaco.rounds import State
from fedtaco.testing.engines import Backwards, OverTheWire, Tally, through_bytes
from fedtaco.testing.small import (
    CLIENTS,
    LOCAL_LR,
    ROUNDS,
    SAMPLES,
    STEPS,
    final_state,
    make_federation,
    play,
    setting,
    skewed_clients,
)


def check_method(method: Method) -> None:
    """Hold a method to the whole contract."""
    for check in CONTRACT:
        try:
            check(method)
        except AssertionError:
            raise
        except Exception as error:
            rule = check.__name__.replace("_", " ")
            raise AssertionError(f"{method.name} fails '{rule}' with {type(error).__name__}: {error}") from error


def hooks_are_well_formed(method: Method) -> None:
    """Hooks are spelt right and give named tensors; an upload holds ``update``, and all memory is kept."""
    hooks = {name for name in dir(Method) if not name.startswith("_")}
    for name in {name for name in dir(method) if not name.startswith("_")} - hooks:
        near = difflib.get_close_matches(name, hooks, n=1, cutoff=0.85)
        assert not near, f"{method.name}: '{name}' is no hook; did you mean '{near[0]}'?"
    federation = make_federation(method)
    server = federation.begin().server
    declared = method.client_memory(server.weights, setting())
    for whose, memory in (("server_memory", server.memory), ("client_memory", declared)):
        for name, value in memory.items():
            kind = type(value).__name__
            assert isinstance(value, Tensor), f"{method.name}: {whose} gives '{name}' as {kind}, not as a tensor"
    if method.surveys:
        return
    sent = method.broadcast(server, torch.arange(CLIENTS))
    numbers = {name: values[0] for name, values in sent.scalars.items()}
    answer = _by_hand(method, sent, numbers, declared, torch.ones(1, dtype=torch.float64))
    assert isinstance(answer, tuple) and len(answer) == 2, f"{method.name}: finish must give a pair (upload, memory)"
    assert "update" in method.decode(answer[0]), f"{method.name}: the upload holds no 'update'"
    assert set(answer[1]) == set(declared), (
        f"{method.name}: client_memory names {sorted(declared)}, but finish keeps {sorted(answer[1])}"
    )


def same_seed_same_result(method: Method) -> None:
    """Two runs of one seed agree to the last bit, and another seed gives another result."""
    first, second = final_state(method), final_state(method)
    _same(first, second, "two runs with the same seed differ")
    assert not torch.equal(first.server.weights, final_state(method, seed=1).server.weights), (
        f"{method.name}: the seed changes nothing"
    )


def order_of_work_does_not_matter(method: Method) -> None:
    """An engine may run the clients of a cohort in any order."""
    backwards = final_state(method, engine=Backwards)
    _same(final_state(method), backwards, "the order in which clients work changes the result")


def numbering_of_clients_does_not_matter(method: Method) -> None:
    """Renumbering the clients renumbers what belongs to them and changes nothing else."""
    turned = [*range(1, CLIENTS), 0]
    plain = final_state(method, batch_size=SAMPLES)
    renumbered = final_state(method, batch_size=SAMPLES, clients=[skewed_clients()[i] for i in turned])
    _close(plain.server.weights, renumbered.server.weights, "the numbering of clients changes the result")
    for new, old in enumerate(turned):
        for name, value in plain.memories.get(old, {}).items():
            _close(value, renumbered.memories[new][name], f"client memory '{name}' went to another client")


def state_survives_saving(method: Method) -> None:
    """A run that is stopped, saved as bytes, loaded and continued ends where an unbroken one does."""
    federation = make_federation(method)
    halfway = play(federation, federation.begin(), ROUNDS // 2)[-1].state
    loaded = State(
        halfway.round,
        Server(**through_bytes({"weights": halfway.server.weights}), memory=through_bytes(halfway.server.memory)),
        halfway.buffers,
        {client: through_bytes(memory) for client, memory in halfway.memories.items()},
        through_bytes(halfway.trust),
    )
    resumed = play(make_federation(method), loaded)[-1].state
    _same(final_state(method), resumed, "a resumed run ends elsewhere than an unbroken one")


def messages_survive_the_wire(method: Method) -> None:
    """All that passes between server and clients is named tensors, which a network can carry."""
    _same(final_state(method), final_state(method, engine=OverTheWire), "a message is changed by sending it")


def zero_rate_changes_nothing(method: Method) -> None:
    """With a local rate of zero the model stays where it is."""
    federation = make_federation(method, local_lr=0.0)
    start = federation.begin()
    end = play(federation, start)[-1].state
    assert torch.equal(start.server.weights, end.server.weights), f"{method.name}: a rate of zero moves the model"


def absent_clients_keep_their_memory(method: Method) -> None:
    """Under partial participation only the cohort works and only its memory changes."""
    federation = make_federation(method, participation=0.4)
    state, asked = federation.begin(), set()
    for outcome in federation.rounds(state):
        cohort = {record.client for record in outcome.clients}
        assert len(cohort) == 2, f"{method.name}: {len(cohort)} clients took part instead of 2"
        for client, memory in state.memories.items():
            if client not in cohort:
                unchanged = all(torch.equal(memory[name], outcome.state.memories[client][name]) for name in memory)
                assert unchanged, f"{method.name}: client {client} was absent and its memory changed"
        asked |= cohort
        state = outcome.state
    _finite(method, state)
    assert set(state.memories) <= asked, f"{method.name}: a client that was never asked has a memory"


def few_clients_work(method: Method) -> None:
    """One client and two clients are enough."""
    for count in (1, 2):
        _finite(method, final_state(method, clients=skewed_clients()[:count]))


def unequal_steps_work(method: Method) -> None:
    """Clients may do different numbers of steps."""
    _finite(method, final_state(method, steps=[1, 2, 3, 4, 5]))


def weights_sum_to_one(method: Method) -> None:
    """Aggregation weights are not negative and sum to one, uniform or by samples."""
    for weighting in ("uniform", "samples"):
        federation = make_federation(method, weighting=weighting)
        for outcome in play(federation, federation.begin()):
            weights = [record.weight for record in outcome.clients]
            assert min(weights) >= 0, f"{method.name}: a weight is negative, {min(weights)}"
            assert abs(sum(weights) - 1) < 1e-9, f"{method.name}: the weights sum to {sum(weights)}"


def a_broken_upload_costs_only_itself(method: Method) -> None:
    """A client whose upload is not finite is left out and reported; the others go on without it."""
    broken = skewed_clients()
    broken[2] = TensorSamples(torch.full_like(broken[2].x, torch.nan), broken[2].y)
    federation = make_federation(method, clients=broken)
    outcomes = play(federation, federation.begin())
    for outcome in outcomes:
        assert set(outcome.record.dropped) == {2}, f"{method.name}: a broken upload was not reported"
        assert outcome.clients[2].weight == 0, f"{method.name}: a broken upload was given weight"
    _finite(method, outcomes[-1].state)
    assert 2 not in outcomes[-1].state.memories, f"{method.name}: a broken client's memory was kept"


def stacked_clients_agree(method: Method) -> None:
    """Client hooks are elementwise: a stack of clients (n, d) gives what each gives alone."""
    state = final_state(method)
    cohort = torch.arange(CLIENTS)
    sent = method.broadcast(state.server, cohort)
    fresh = method.client_memory(state.server.weights, setting())
    memories = [state.memories.get(client, fresh) for client in range(CLIENTS)]
    slopes = torch.linspace(0.5, 1.5, CLIENTS, dtype=torch.float64)[:, None]
    columns = {name: values[:, None] for name, values in sent.scalars.items()}
    stack = {name: torch.stack([memory[name] for memory in memories]) for name in fresh}
    together = _by_hand(method, sent, columns, stack, slopes)
    for client in range(CLIENTS):
        own = {name: values[client] for name, values in sent.scalars.items()}
        alone = _by_hand(method, sent, own, memories[client], slopes[client])
        for kind, stacked, single in zip(("upload", "memory"), together, alone, strict=True):
            for name, value in single.items():
                _close(stacked[name][client], value, f"{kind} '{name}' of stacked clients differs")


def cost_is_as_stated(method: Method) -> None:
    """The method's :class:`Cost` is what a round really takes."""
    tally = Tally()
    federation = make_federation(method, engine=tally.engine, loss=tally.loss)
    state = play(federation, federation.begin())[-1].state
    tally.gradients -= 1  # the warm-up
    cost, visits = method.cost, ROUNDS * CLIENTS
    measured = {
        "gradients": (tally.gradients / visits, cost.gradients * STEPS - cost.spared),
        "full_passes": (tally.full_passes / visits, cost.full_passes),
        "down": (tally.down / ROUNDS, cost.down),
        "scalars_down": (tally.scalars_down / ROUNDS, cost.scalars_down),
        "memory": (tally.vectors_kept / visits, cost.memory),
    }
    for name, (found, stated) in measured.items():
        assert found == stated, f"{method.name}: cost.{name} amounts to {stated}, but a round takes {found:g}"
    sent = tally.bytes_up / visits / state.server.weights.nbytes
    assert abs(sent - cost.up) < 0.1, f"{method.name}: cost.up is {cost.up}, but a client sends {sent:.2f} vectors"


CONTRACT: tuple[Callable[[Method], None], ...] = (
    hooks_are_well_formed,
    same_seed_same_result,
    order_of_work_does_not_matter,
    numbering_of_clients_does_not_matter,
    state_survives_saving,
    messages_survive_the_wire,
    zero_rate_changes_nothing,
    absent_clients_keep_their_memory,
    few_clients_work,
    unequal_steps_work,
    weights_sum_to_one,
    a_broken_upload_costs_only_itself,
    stacked_clients_agree,
    cost_is_as_stated,
)


def _by_hand(method: Method, sent: Broadcast, numbers: Memory, memory: Memory, slopes: Tensor) -> tuple[Memory, Memory]:
    """A round of clients whose loss is quadratic, without model or data."""

    def gradient(point: Tensor) -> Tensor:
        return slopes * (point - 1)

    received = {**sent.vectors, **numbers}
    local = Local(setting(), sent.start, received, memory, STEPS, gradient=gradient, full_gradient=gradient)
    local.correction = method.correction(local)
    x = sent.start + torch.zeros_like(slopes)
    for local.step in range(STEPS):
        x = x - LOCAL_LR * method.direction(x, local)
    return method.finish(local.start - x, local)


def _same(first: State, second: State, complaint: str) -> None:
    for (name, one), (_, other) in zip(_named(first), _named(second), strict=True):
        assert torch.equal(one, other), f"{complaint} ('{name}')"


def _close(first: Tensor, second: Tensor, complaint: str) -> None:
    assert torch.allclose(first, second, rtol=1e-9, atol=1e-12), complaint


def _finite(method: Method, state: State) -> None:
    for name, tensor in _named(state):
        assert torch.isfinite(tensor).all(), f"{method.name}: '{name}' is not finite"


def _named(state: State) -> list[tuple[str, Tensor]]:
    own = {f"client {i}: {name}": t for i, memory in sorted(state.memories.items()) for name, t in memory.items()}
    return [("weights", state.server.weights), *sorted(state.server.memory.items()), *own.items()]
