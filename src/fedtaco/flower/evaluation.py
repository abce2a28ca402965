"""Evaluation of the global model by the nodes."""

import math
from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedtaco.flower.deployment import Deployment
from fedtaco.flower.log import log
from fedtaco.flower.metrics import ReportedMetrics, mean_metrics, metric_counts
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


def average_evaluations(deployment: Deployment, replies: Iterable[Message], number: int) -> MetricRecord | None:
    """Return the weighted means of what the nodes measured; ``None`` if no node did.

    The first reply of each node counts. Invalid values are logged with their node and ignored.
    """
    reported: dict[int, ReportedMetrics] = {}
    for reply in replies:
        node = deployment.exchange.node_of(reply)
        if reply.has_error():
            log.warning("Round %d: node %d did not evaluate: %s.", number, node, printable(error_reason(reply)))
        else:
            reported.setdefault(node, read_metrics(reply.content))
    if not reported:
        return None
    nodes, metrics = list(reported), list(reported.values())
    means, problems = mean_metrics(metrics, metric_counts(metrics, deployment.policy.weighted_by_key))
    for place, complaints in problems.items():
        log.warning("Round %d: in the evaluation of node %d, %s.", number, nodes[place], "; ".join(complaints))
    return means


def recorded_scores(by_nodes: MetricRecord | None, by_server: MetricRecord | None) -> dict[str, Any]:
    """Return what is recorded of an evaluation: accuracy, loss, and under ``metrics`` the server's other numbers.

    Parameters
    ----------
    by_nodes, by_server
        What the nodes and the server measured, or ``None``; the server's accuracy and loss are preferred.

    Returns
    -------
    dict
        Fields of :class:`~fedtaco.records.RoundRecord`; ``None`` if not measured. A loss may be NaN, other numbers not.
    """
    own = _numbers(by_server)
    found = _numbers(by_nodes) if by_server is None else own
    others = {name: finite_or_none(value) for name, value in own.items() if name not in ("accuracy", "loss")}
    accuracy = finite_or_none(found.get("accuracy", math.nan))
    return {"accuracy": accuracy, "loss": found.get("loss"), "metrics": others}


def _numbers(metrics: MetricRecord | None) -> dict[str, float]:
    return {name: float(value) for name, value in (metrics or {}).items() if isinstance(value, int | float)}
