"""Run folders written by hand, so that every figure in them is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedtaco.records import (
    ClientDiagnostics,
    ClientEvaluation,
    ClientRecord,
    Decision,
    History,
    PartitionRecord,
    RoundDiagnostics,
    RoundRecord,
    RunFolder,
)
from fedtaco.records.summary import summarize


def write_run(
    path: Path,
    method: str = "taco",
    *,
    seed: int = 0,
    accuracies: tuple[float | None, ...] = (0.5, 0.7, 0.9),
    groups: tuple[str, ...] = ("B", "A", "A"),
    finished: bool = True,
    stopped: str | None = None,
    timed: bool = True,
    validation: bool = False,
    bytes_up: int = 0,
    expelled: dict[int, int] | None = None,
    dropped: dict[int, dict[int, str]] | None = None,
    classes: int = 10,
    freeloaders: tuple[int, ...] = (),
    decisions: dict[int, list[Decision]] | None = None,
    gains: tuple[float, ...] = (),
    warnings: dict[int, str] | None = None,
    metrics: dict[str, float | None] | None = None,
    evaluations: tuple[ClientEvaluation, ...] = (),
    over_correction: dict[int, list[float | None]] | None = None,
    **settings: Any,
) -> RunFolder:
    """Write a run with one client per entry of ``groups`` and one round per accuracy.

    ``expelled`` maps clients to rounds, ``dropped``, ``decisions`` and ``warnings`` rounds to events. Without
    ``classes`` the clients' labels are unknown, as on Flower. An accuracy of ``None`` stands for a round without
    evaluation. ``over_correction`` maps rounds to the indices of all clients, in a diagnosed run.
    """
    clients, folder = len(groups), RunFolder(path)
    config = {
        "fedtaco": "0.1.0",
        "method": method,
        "dataset": "digits",
        "model": "mlp",
        "partition": "groups",
        "clients": clients,
        "rounds": 3,
        "seed": seed,
        "target": 0.9,
        "engine": "auto",
        "parameters": {},
        "ran_by": {"engine": "serial", "reason": "the work is small"},
        **({} if over_correction is None else {"diagnose": True}),
        **settings,
    }
    counts = np.arange(clients * classes).reshape(clients, classes) + 1
    indices = [np.arange(3) + 3 * client for client in range(clients)]
    partition = PartitionRecord(indices, counts, list(groups), list(freeloaders))
    folder.create(config, partition)
    history, out = History(), expelled or {}
    for number, accuracy in enumerate(accuracies, 1):
        own = [
            ClientRecord(
                number,
                client,
                {
                    "alpha": client / 10 + number / 100,
                    "cosine": 0.5,
                    "norm": float(number),
                    "weight": 1 / clients,
                    "training_loss": 1 / number,
                    "side": (-1.0, 1.0)[client % 2],
                },
                seconds=None,
                strikes=number,
                expelled=out.get(client) == number,
            )
            for client in range(clients)
            if out.get(client, number) >= number
        ]
        record = RoundRecord(
            number,
            accuracy,
            None if accuracy is None else 1 - accuracy,
            2.0 if timed else None,
            3.0,
            training_loss=1 / number,
            validation_accuracy=accuracy / 2 if validation and accuracy else None,
            class_accuracy=None if accuracy is None else [accuracy] * classes or None,
            balanced_accuracy=accuracy,
            metrics=metrics or {},
            cohort=len(own),
            bytes_up=bytes_up,
            bytes_down=2 * bytes_up,
            dropped=(dropped or {}).get(number, {}),
            decisions=(decisions or {}).get(number, []),
            gain=gains[number - 1] if gains else None,
            warning=(warnings or {}).get(number),
        )
        history.rounds.append(record)
        history.clients.extend(own)
        found = None if over_correction is None else diagnosed(number, over_correction[number])
        folder.append_round(record, own, found)
    if not finished and accuracies:
        folder.save_checkpoint(len(accuracies), {"state/weights": np.zeros(1)}, {})
    if finished:
        run = {
            "method": method.rpartition(":")[2],
            "seed": seed,
            "personal": None,
            "compress": None,
            "partition_notes": [],
        }
        ending = {"stopped": stopped, "ended_early": None}
        if evaluations:
            folder.save_client_evaluations(evaluations)
        measured = summarize(history, config["target"], partition, evaluations=evaluations)
        folder.save_summary({**run, **ending, **measured})
    return folder


def diagnosed(number: int, indices: list[float | None]) -> RoundDiagnostics:
    """Return the diagnostics of a round with these over-correction indices."""
    clients = [
        ClientDiagnostics(client, 1.0, 0.5, drift=float(number), over_correction=index)
        for client, index in enumerate(indices)
    ]
    return RoundDiagnostics(number, 1.0, 2.0, 0.5, clients=clients)
