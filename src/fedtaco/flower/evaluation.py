"""Evaluation of the global model by the nodes."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from fedtaco.flower.log import log
from fedtaco.flower.metrics import ReportedMetrics, mean_metrics, read_metric
from fedtaco.flower.open_round import OpenRound
from fedtaco.flower.replies import error_reason
from fedtaco.flower.wire import EvaluationInstructions, read_metrics, wire_key
from fedtaco.printable import printable
from fedtaco.randomness import generator
from fedtaco.records import finite_or_none
from fedtaco.server import cohort_size


def evaluation_messages(
    opened: OpenRound, grid: Grid, arrays: ArrayRecord, config: ConfigRecord, fraction: float
) -> list[Message]:
    """Return one message for each of a ``fraction`` of the connected nodes.

    Nodes have frozen parameters and personal layers themselves, so that these are left out of the messages.
    """
    deployment, number = opened.deployment, opened.number
    present = deployment.present_clients(grid) if fraction else []
    if not present:
        return []
    shuffled = generator(deployment.server.seed, "evaluate", number).permutation(len(present))
    chosen = sorted(shuffled[: cohort_size(fraction, len(present))].tolist())
    unsent, frozen = deployment.model.unsent_names, deployment.model.frozen_fingerprint()
    sent = ArrayRecord({name: array for name, array in arrays.items() if name not in unsent})
    messages = []
    for client in (present[place] for place in chosen):
        node = EvaluationInstructions(
            run=deployment.run,
            client=client,
            memory_round=opened.memory_round(client),
            frozen=frozen,
            personal=deployment.settings["personal"],
        )
        entries = ConfigRecord({**config, wire_key("round"): number, **node.to_config()})
        content = RecordDict({"arrays": sent, "config": entries})
        messages.append(deployment.message(content, client, MessageType.EVALUATE, number))
    return messages


def average_evaluations(opened: OpenRound, replies: Iterable[Message]) -> MetricRecord | None:
    """Return the weighted means of what the nodes measured; ``None`` if no node did.

    The first reply of each node counts. Invalid values are logged with their node and ignored. The loss of each node is
    kept in the round, which is judged by it.
    """
    deployment, number = opened.deployment, opened.number
    reported: dict[int, ReportedMetrics] = {}
    for reply in replies:
        node = deployment.exchange.node_of(reply)
        client = deployment.nodes.client_of(node)
        if client is None:
            log.warning("Round %d: an evaluation of node %d, which was not asked, is ignored.", number, node)
        elif reply.has_error():
            log.warning("Round %d: node %d did not evaluate: %s.", number, node, printable(error_reason(reply)))
        else:
            reported.setdefault(client, read_metrics(reply.content))
    if not reported:
        opened.node_losses = None
        return None
    clients = list(reported)
    means, problems = mean_metrics(list(reported.values()), deployment.policy.weighted_by_key)
    for place, complaints in problems.items():
        node = deployment.nodes.nodes[clients[place]]
        log.warning("Round %d: in the evaluation of node %d, %s.", number, node, "; ".join(complaints))
    opened.node_losses = _losses_by_client(reported, deployment.nodes.capacity) if "loss" in means else None
    return means


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
