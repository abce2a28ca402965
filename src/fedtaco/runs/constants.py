"""The optimizer, the work of clients and the constants of a run, from its settings."""

from collections.abc import Mapping
from typing import Any

from fedtaco.local_optimizer import OPTIMIZERS, LocalOptimizer
from fedtaco.lr_schedule import parse_schedule
from fedtaco.methods import Constants
from fedtaco.unequal_work import ClientWork, parse_local_work


def make_optimizer(settings: Mapping[str, Any]) -> LocalOptimizer:
    """Return the optimizer of local training that checked settings describe."""
    options = {name: settings[name] for name in ("weight_decay", "clip_norm")}
    if settings["optimizer"] == "sgd":
        options |= {name: settings[name] for name in ("momentum", "nesterov")}
    return OPTIMIZERS[settings["optimizer"]](**options)


def make_client_work(settings: Mapping[str, Any]) -> ClientWork:
    """Return the work of simulated clients that checked settings describe."""
    return ClientWork(parse_local_work(settings["local_work"]), settings["client_dropout"], settings["deadline"])


def make_constants(settings: Mapping[str, Any], *, clients: int, rounds: int, local_steps: int) -> Constants:
    """Return the constants of a run.

    Parameters
    ----------
    settings
        Checked settings, at least those in :class:`~fedtaco.runs.settings.SharedSettings`.
    clients, rounds, local_steps
        N, T and K.
    """
    return Constants(
        clients=clients,
        rounds=rounds,
        local_steps=local_steps,
        local_lr=settings["local_lr"],
        server_lr=settings["server_lr"],
        optimizer=make_optimizer(settings),
        lr_schedule=parse_schedule(settings["lr_schedule"]),
    )
