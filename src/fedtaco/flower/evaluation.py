"""Evaluation of the global model by the nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from torch import Tensor

from fedtaco.flower.log import log
from fedtaco.flower.metrics import ReportedMetrics, mean_metrics, read_metric
from fedtaco.flower.replies import error_reason
from fedtaco.flower.wire import EvaluationInstructions, read_metrics, wire_key
from fedtaco.printable import printable
from fedtaco.randomness import generator
from fedtaco.records import finite_or_none
from fedtaco.run_state import RunState
from fedtaco.settings.run_spec import cohort_size

if TYPE_CHECKING:
    from fedtaco.flower.node_clients import NodeClients


def evaluation_messages(
    clients: NodeClients, state: RunState, arrays: ArrayRecord, memory_rounds: Sequence[int]
) -> list[Message]:
    """Return one message for each of the connected nodes that evaluate the model.

    Nodes have frozen parameters and personal layers themselves, so that these are left out of the messages.

    Parameters
    ----------
    clients
        The nodes.
    state, arrays
        The state after a round, and its model.
    memory_rounds
        For each client, the round after which its memory is valid.
    """
    policy, number, settings = clients.policy, state.round, clients.spec.settings
    connected = clients.nodes.connected_mask(clients.exchange.grid.get_node_ids()) if policy.fraction_evaluate else None
    present = [] if connected is None else torch.nonzero(connected & ~state.expelled).flatten().tolist()
    if not present:
        return []
    shuffled = generator(settings["seed"], "evaluate", number).permutation(len(present))
    chosen = sorted(shuffled[: cohort_size(policy.fraction_evaluate, len(present))].tolist())
    unsent, frozen = clients.model.unsent_names, clients.model.frozen_fingerprint()
    sent = ArrayRecord({name: array for name, array in arrays.items() if name not in unsent})
    messages = []
    for client in (present[place] for place in chosen):
        node = EvaluationInstructions(
            run=clients.run_id(),
            client=client,
            memory_round=memory_rounds[client],
            frozen=frozen,
            personal=settings["personal"],
        )
        entries = ConfigRecord({**policy.evaluate_config, wire_key("round"): number, **node.to_config()})
        content = RecordDict({"arrays": sent, "config": entries})
        messages.append(clients.message(content, client, MessageType.EVALUATE, number))
    return messages


def average_evaluations(
    clients: NodeClients, replies: Iterable[Message], number: int
) -> tuple[MetricRecord | None, Tensor | None]:
    """Average what the nodes measured; the first reply of each node counts.

    Invalid values are logged with their node and ignored.

    Returns
    -------
    tuple
        The weighted means, or ``None`` if no node evaluated the model; and the loss of each client, by which the round
        is judged, or ``None`` if the nodes measured none.
    """
    nodes, policy = clients.nodes, clients.policy
    reported: dict[int, ReportedMetrics] = {}
    for reply in replies:
        node = clients.exchange.node_of(reply)
        client = nodes.client_of(node)
        if client is None:
            log.warning("Round %d: an evaluation of node %d, which was not asked, is ignored.", number, node)
        elif reply.has_error():
            log.warning("Round %d: node %d did not evaluate: %s.", number, node, printable(error_reason(reply)))
        else:
            reported.setdefault(client, read_metrics(reply.content))
    if not reported:
        return None, None
    evaluators = list(reported)
    means, problems = mean_metrics(list(reported.values()), policy.weighted_by_key)
    for place, complaints in problems.items():
        node = nodes.nodes[evaluators[place]]
        log.warning("Round %d: in the evaluation of node %d, %s.", number, node, "; ".join(complaints))
    return means, _losses_by_client(reported, nodes.capacity) if "loss" in means else None


def _losses_by_client(reported: Mapping[int, ReportedMetrics], clients: int) -> Tensor:
    """Return the loss of each client: infinite if it is not valid, and NaN if the client did not report one."""
    losses = torch.full((clients,), math.nan, dtype=torch.float64)
    for client, metrics in reported.items():
        if "loss" in metrics:
            loss = read_metric("loss", metrics["loss"])
            losses[client] = math.inf if loss is None else loss
    return losses


def recorded_scores(
    by_nodes: MetricRecord | None, by_server: MetricRecord | None, node_losses: Tensor | None
) -> dict[str, Any]:
    """Return what is recorded of an evaluation: accuracy, loss, and under ``metrics`` the server's other numbers.

    Parameters
    ----------
    by_nodes, by_server
        What the nodes and the server measured, or ``None``; the server's accuracy and loss are preferred.
    node_losses
        The loss of each client, or ``None``.

    Returns
    -------
    dict
        What :meth:`~fedtaco.run_state.RoundOutcome.finish` takes. A loss may be NaN, other numbers not.
    """
    own = _numbers(by_server)
    found = _numbers(by_nodes) if by_server is None else own
    others = {name: finite_or_none(value) for name, value in own.items() if name not in ("accuracy", "loss")}
    accuracy = finite_or_none(found.get("accuracy", math.nan))
    judged = node_losses if by_server is None else None
    return {"accuracy": accuracy, "loss": found.get("loss"), "metrics": others, "node_losses": judged}


def _numbers(metrics: MetricRecord | None) -> dict[str, float]:
    return {name: float(value) for name, value in (metrics or {}).items() if isinstance(value, int | float)}
