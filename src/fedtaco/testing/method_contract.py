"""The contract of methods: one function per rule, whose docstring states the rule."""

import difflib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedtaco.data import TensorSamples
from fedtaco.local_optimizer import AdamW, Sgd
from fedtaco.lr_schedule import StepDecay
from fedtaco.methods import Broadcast, LocalContext, Method, NamedTensors, ServerState
from fedtaco.processes import can_fork
from fedtaco.run_state import RunState
from fedtaco.testing.checks import assert_same, named_tensors, run_checks
from fedtaco.testing.engines import CostCounter, ReversedEngine, WireEngine, one_stack, through_bytes, two_workers
from fedtaco.testing.small_federation import (
    CLIENTS,
    FEATURES,
    LOCAL_LR,
    ROUNDS,
    SAMPLES,
    STEPS,
    constants,
    final_state,
    make_federation,
    run_rounds,
    skewed_clients,
)
from fedtaco.unequal_work import ClientWork


def check_method(method: Method) -> None:
    """Check that a method fulfils the contract of methods.

    Parameters
    ----------
    method
        The method to check, with the parameters it is to be checked with.

    Raises
    ------
    AssertionError
        If the method breaks a rule; the message explains the first one.

    Examples
    --------
    >>> from fedtaco import Taco
    >>> check_method(Taco(gamma=0.02))
    """
    run_checks(METHOD_CONTRACT, method)


def hooks_are_well_formed(method: Method) -> None:
    """Hooks are spelt right and return named tensors, uploads contain ``update``, and ``finish`` returns all memory."""
    hooks = {name for name in dir(Method) if not name.startswith("_")}
    for name in {name for name in dir(method) if not name.startswith("_")} - hooks:
        near = difflib.get_close_matches(name, hooks, n=1, cutoff=0.85)
        assert not near, f"{method.name}: '{name}' is not a hook; did you mean '{near[0]}'?"
    federation = make_federation(method)
    server = federation.initial.server
    declared = method.client_memory(server.weights, constants())
    for hook, memory in (("server_memory", server.memory), ("client_memory", declared)):
        for name, value in memory.items():
            kind = type(value).__name__
            assert isinstance(value, Tensor), f"{method.name}: {hook} returns '{name}' as {kind}, not as a tensor"
    if method.surveys:
        return
    sent = method.broadcast(server, torch.arange(CLIENTS))
    numbers = {name: values[0] for name, values in sent.scalars.items()}
    result = _run_by_hand(method, sent, numbers, declared, torch.ones(1, dtype=torch.float64))
    assert isinstance(result, tuple) and len(result) == 2, f"{method.name}: finish must return a pair (upload, memory)"
    assert "update" in result[0], f"{method.name}: the upload does not contain 'update'"
    assert set(result[1]) == set(declared), (
        f"{method.name}: client_memory declares {sorted(declared)}, but finish returns {sorted(result[1])}"
    )


def memory_follows_from_the_upload(method: Method) -> None:
    """What ``mirror`` returns is part of the client memory and is what ``finish`` returns; names contain no slash.

    A client whose upload is compressed or clipped, and the server, use ``mirror`` instead of ``finish``.
    """
    state = final_state(method)
    fresh = method.client_memory(state.server.weights, constants())
    assert not any("/" in name for name in fresh), f"{method.name}: a name in client_memory contains a slash"
    sent = method.broadcast(state.server, torch.arange(CLIENTS))
    numbers, slopes = {name: values[0] for name, values in sent.scalars.items()}, torch.ones(1, dtype=torch.float64)
    before = state.memories.get(0, fresh)
    upload, memory = _run_by_hand(method, sent, numbers, before, slopes)
    local = _context(sent, numbers, before, torch.zeros_like)
    for name, value in method.mirror(upload, local).items():
        assert name in memory, f"{method.name}: mirror returns '{name}', which is not in client_memory"
        _close(memory[name], value, f"{method.name}: mirror and finish return different '{name}'")


def same_seed_same_result(method: Method) -> None:
    """Two runs with the same seed agree to the last bit, and another seed gives another result."""
    first, second = final_state(method), final_state(method)
    assert_same(first, second, "two runs with the same seed differ")
    assert not torch.equal(first.server.weights, final_state(method, seed=1).server.weights), (
        f"{method.name}: another seed gives the same result"
    )


def order_of_work_does_not_matter(method: Method) -> None:
    """An engine may run the clients of a cohort in any order."""
    backwards = final_state(method, engine=ReversedEngine)
    assert_same(final_state(method), backwards, "the order in which clients run changes the result")


def numbering_of_clients_does_not_matter(method: Method) -> None:
    """Renumbering the clients renumbers what belongs to them and changes nothing else."""
    rotated = [*range(1, CLIENTS), 0]
    plain = final_state(method, batch_size=SAMPLES)
    renumbered = final_state(method, batch_size=SAMPLES, clients=[skewed_clients()[i] for i in rotated])
    _close(plain.server.weights, renumbered.server.weights, "the numbering of clients changes the result")
    for new, old in enumerate(rotated):
        for name, value in plain.memories.get(old, {}).items():
            _close(value, renumbered.memories[new][name], f"client memory '{name}' depends on the numbering of clients")


def state_survives_saving(method: Method) -> None:
    """A run that is stopped, saved as bytes, loaded and continued has the same result as an uninterrupted one."""
    federation = make_federation(method)
    halfway = run_rounds(federation, federation.initial, ROUNDS // 2)[-1].state
    loaded = RunState(
        round=halfway.round,
        server=ServerState(
            **through_bytes({"weights": halfway.server.weights}), memory=through_bytes(halfway.server.memory)
        ),
        buffers=halfway.buffers,
        memories={client: through_bytes(memory) for client, memory in halfway.memories.items()},
        expelled=halfway.expelled,
        detector_memory=through_bytes(halfway.detector_memory),
        baseline=through_bytes(halfway.baseline),
    )
    resumed = run_rounds(make_federation(method), loaded)[-1].state
    assert_same(final_state(method), resumed, "a resumed run differs from an uninterrupted one")


def messages_survive_the_wire(method: Method) -> None:
    """Messages between server and clients are named tensors, which arrive over a network unchanged."""
    assert_same(final_state(method), final_state(method, engine=WireEngine), "sending a message as bytes changes it")


def zero_rate_changes_nothing(method: Method) -> None:
    """With a local learning rate of zero the model does not change."""
    federation = make_federation(method, local_lr=0.0)
    start = federation.initial
    end = run_rounds(federation, start)[-1].state
    assert torch.equal(start.server.weights, end.server.weights), f"{method.name}: a zero learning rate moves the model"


def absent_clients_keep_their_memory(method: Method) -> None:
    """Under partial participation, only the clients of the cohort run, and only their memory changes.

    A method that needs all clients is left out.
    """
    if method.needs_all_clients:
        return
    federation = make_federation(method, participation=0.4)
    participants: set[int] = set()
    state: RunState = federation.initial
    for finished in federation.rounds(state):
        cohort = {record.client for record in finished.clients}
        assert len(cohort) == 2, f"{method.name}: {len(cohort)} clients took part instead of 2"
        for client, memory in state.memories.items():
            if client not in cohort:
                unchanged = all(torch.equal(memory[name], finished.state.memories[client][name]) for name in memory)
                assert unchanged, f"{method.name}: client {client} was absent and its memory changed"
        participants |= cohort
        state = finished.state
    _finite(method, state)
    assert set(state.memories) <= participants, f"{method.name}: a client that never took part has a memory"


def clients_may_not_answer(method: Method) -> None:
    """The memory of a client that does not answer stays as it was; if nobody answers, nothing changes."""
    if method.needs_all_clients:
        return
    federation = make_federation(method, work=ClientWork(dropout=0.7), seed=5)
    state: RunState = federation.initial
    answers = set()
    for finished in federation.rounds(state):
        absent, after = finished.record.dropped, finished.state
        for client, memory in state.memories.items():
            unchanged = client not in absent or after.memories[client] is memory
            assert unchanged, f"{method.name}: client {client} did not answer and its memory changed"
        if len(absent) == CLIENTS:
            assert_same(state, after, f"{method.name}: a round without answers changes the state")
        answers.add(CLIENTS - len(absent))
        state = after
    assert min(answers) == 0 < max(answers), "the seed does not fit this check"
    _finite(method, state)


def few_clients_work(method: Method) -> None:
    """Runs with one client and with two clients work."""
    for count in (1, 2):
        _finite(method, final_state(method, clients=skewed_clients()[:count]))


def unequal_steps_work(method: Method) -> None:
    """Clients may take different numbers of steps, unless the method refuses them: ``unequal_steps`` is ``None``."""
    if method.unequal_steps is not None:
        _finite(method, final_state(method, steps=[1, 2, 3, 4, 5]))


def weights_sum_to_one(method: Method) -> None:
    """Aggregation weights are not negative and sum to one, whether uniform or by samples."""
    for weighting in ("uniform", "samples"):
        federation = make_federation(method, weighting=weighting)
        for finished in run_rounds(federation, federation.initial):
            weights = [record.quantities["weight"] or 0.0 for record in finished.clients]
            assert min(weights) >= 0, f"{method.name}: a weight is negative, {min(weights)}"
            assert abs(sum(weights) - 1) < 1e-9, f"{method.name}: the weights sum to {sum(weights)}"


def a_broken_upload_is_dropped(method: Method) -> None:
    """An upload that is not finite is dropped and reported; the others are used."""
    broken = skewed_clients()
    broken[2] = TensorSamples(torch.full((SAMPLES, FEATURES), torch.nan, dtype=torch.float64), broken[2].y)
    federation = make_federation(method, clients=broken)
    finished_rounds = run_rounds(federation, federation.initial)
    for finished in finished_rounds:
        assert set(finished.record.dropped) == {2}, f"{method.name}: a broken upload was not reported"
        assert finished.clients[2].quantities["weight"] == 0, f"{method.name}: a broken upload has a non-zero weight"
    _finite(method, finished_rounds[-1].state)
    assert 2 not in finished_rounds[-1].state.memories, f"{method.name}: the memory of a broken upload was kept"


def stacked_clients_agree(method: Method) -> None:
    """Client hooks are elementwise: a stack of clients (n, d) gives the same results as each client alone."""
    state = final_state(method)
    cohort = torch.arange(CLIENTS)
    sent = method.broadcast(state.server, cohort)
    fresh = method.client_memory(state.server.weights, constants())
    memories = [state.memories.get(client, fresh) for client in range(CLIENTS)]
    slopes = torch.linspace(0.5, 1.5, CLIENTS, dtype=torch.float64)[:, None]
    columns = {name: values[:, None] for name, values in sent.scalars.items()}
    stack = {name: torch.stack([memory[name] for memory in memories]) for name in fresh}
    together = _run_by_hand(method, sent, columns, stack, slopes)
    for client in range(CLIENTS):
        own = {name: values[client] for name, values in sent.scalars.items()}
        alone = _run_by_hand(method, sent, own, memories[client], slopes[client])
        for kind, stacked, single in zip(("upload", "memory"), together, alone, strict=True):
            for name, value in single.items():
                _close(stacked[name][client], value, f"{kind} '{name}' of stacked clients differs")


def local_optimizers_work_in_every_engine(method: Method) -> None:
    """With momentum or Adam, weight decay, clipping and a schedule, all engines give the same result.

    Adam is left out if the method computes several gradients per step. Worker processes run one of the two.
    """
    common: dict[str, Any] = {"weight_decay": 0.01, "clip_norm": 1.0}
    steps = None if method.unequal_steps is None else [3, 3, 2, 2, 3]
    momentum, adam = Sgd(momentum=0.9, nesterov=True, **common), AdamW(**common)
    optimizers = (momentum,) if method.cost.gradients > 1 else (momentum, adam)
    for optimizer in optimizers:
        options = {"optimizer": optimizer, "lr_schedule": StepDecay(every=2, decay=0.5), "steps": steps}
        serial = final_state(method, **options)
        _finite(method, serial)
        if can_fork() and optimizer is optimizers[-1]:
            pooled = final_state(method, engine=two_workers, **options)
            assert_same(serial, pooled, f"{method.name}: worker processes change the result with {optimizer}")
        stacked = final_state(method, engine=one_stack, **options)
        for (name, one), (_, other) in zip(named_tensors(serial), named_tensors(stacked), strict=True):
            _close(one, other, f"{method.name}: stacked clients give another '{name}' with {optimizer}")


def cost_is_as_stated(method: Method) -> None:
    """The method's :class:`Cost` is what a round really costs."""
    counter = CostCounter()
    federation = make_federation(method, engine=counter.engine, loss=counter.loss)
    state = run_rounds(federation, federation.initial)[-1].state
    counter.gradients -= 1  # computed by ClientRunner.warm_up
    cost, visits = method.cost, ROUNDS * CLIENTS
    measured = {
        "gradients": (counter.gradients / visits, cost.gradients * STEPS - cost.gradients_saved),
        "full_passes": (counter.full_passes / visits, cost.full_passes),
        "down": (counter.down / ROUNDS, cost.down),
        "scalars_down": (counter.scalars_down / ROUNDS, cost.scalars_down),
        "memory": (counter.vectors_kept / visits, cost.memory),
    }
    for name, (found, stated) in measured.items():
        assert found == stated, f"{method.name}: cost.{name} amounts to {stated}, but a round takes {found:g}"
    sent = counter.bytes_up / visits / state.server.weights.nbytes
    assert abs(sent - cost.up) < 0.1, f"{method.name}: cost.up is {cost.up}, but a client sends {sent:.2f} vectors"


METHOD_CONTRACT: tuple[Callable[[Method], None], ...] = (
    hooks_are_well_formed,
    memory_follows_from_the_upload,
    same_seed_same_result,
    order_of_work_does_not_matter,
    numbering_of_clients_does_not_matter,
    state_survives_saving,
    messages_survive_the_wire,
    zero_rate_changes_nothing,
    absent_clients_keep_their_memory,
    clients_may_not_answer,
    few_clients_work,
    unequal_steps_work,
    weights_sum_to_one,
    a_broken_upload_is_dropped,
    stacked_clients_agree,
    local_optimizers_work_in_every_engine,
    cost_is_as_stated,
)


def _run_by_hand(
    method: Method, sent: Broadcast, numbers: NamedTensors, memory: NamedTensors, slopes: Tensor
) -> tuple[NamedTensors, NamedTensors]:
    """Run the client hooks of a round on a quadratic loss, without a model or data; ``slopes`` are its curvatures."""

    def gradient(point: Tensor) -> Tensor:
        return slopes * (point - 1)

    local = _context(sent, numbers, memory, gradient)
    local.correction = method.correction(local)
    x = sent.start + torch.zeros_like(slopes)
    for local.step in range(STEPS):
        x = x - LOCAL_LR * method.direction(x, local)
    return method.finish(local.start - x, local)


def _context(
    sent: Broadcast, numbers: NamedTensors, memory: NamedTensors, gradient: Callable[[Tensor], Tensor]
) -> LocalContext:
    received = {**sent.vectors, **numbers}
    return LocalContext(constants().in_round(1), sent.start, received, memory, STEPS, gradient, gradient)


def _close(first: Tensor, second: Tensor, complaint: str) -> None:
    assert torch.allclose(first, second, rtol=1e-9, atol=1e-12), complaint


def _finite(method: Method, state: RunState) -> None:
    for name, tensor in named_tensors(state):
        assert torch.isfinite(tensor).all(), f"{method.name}: '{name}' is not finite"
