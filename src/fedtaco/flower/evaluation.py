"""Evaluation of the global model by the nodes."""

import math
from collections.abc import Iterable

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


def recorded_scores(metrics: MetricRecord | None) -> dict[str, float | None]:
    """Return accuracy and loss as they are recorded; ``None`` if not measured. A loss may be NaN, an accuracy not."""
    found = {} if metrics is None else metrics
    values = {name: found.get(name) for name in ("accuracy", "loss")}
    scores = {name: float(value) if isinstance(value, int | float) else None for name, value in values.items()}
    accuracy = scores["accuracy"]
    return {**scores, "accuracy": accuracy if accuracy is not None and math.isfinite(accuracy) else None}
