"""The specification of a run: its settings, and the live objects that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedtaco.codecs import NO_CODEC, Codec, codec_text, parse_codec
from fedtaco.local_optimizer import OPTIMIZERS, PLAIN_SGD, LocalOptimizer
from fedtaco.lr_schedule import CONSTANT, LrSchedule, parse_schedule
from fedtaco.methods import METHODS, Constants, Method
from fedtaco.settings.checks import check_settings
from fedtaco.settings.combinations import check_combinations
from fedtaco.settings.declarations import SIMULATION_SETTINGS, ExperimentConfig
from fedtaco.settings.own_task import NOTHING_OWN, OwnTask
from fedtaco.trust import DETECTORS, Detector, Off
from fedtaco.unequal_work import ClientWork, parse_local_work
from fedtaco.version import __version__


@dataclass(frozen=True, eq=False)
class RunSpec:
    """What a run is. It is built once, and becomes text only in the run folder and on the wire.

    Raises
    ------
    InvalidInput
        If settings, each of which is valid, are not valid together.
    """

    method: Method
    settings: Mapping[str, Any]
    """Plain values, at least those of :class:`~fedtaco.settings.declarations.RunSettings` without ``parameters``."""
    detector: Detector = field(default_factory=Off)
    codec: Codec = NO_CODEC
    optimizer: LocalOptimizer = PLAIN_SGD
    lr_schedule: LrSchedule = CONSTANT
    work: ClientWork = field(default_factory=ClientWork)
    task: OwnTask = NOTHING_OWN
    on_nodes: bool = False
    """Whether the clients are nodes of Flower, which keep their memory themselves."""

    def __post_init__(self) -> None:
        check_combinations(self)

    @classmethod
    def from_settings(cls, method: Method, settings: Mapping[str, Any], **others: Any) -> RunSpec:
        """Return the run that checked settings describe; ``others`` are further fields."""
        codec = others.pop("codec", None) or parse_codec(settings["compress"])
        plain = {name: value for name, value in settings.items() if name not in ("method", "detector", "parameters")}
        return cls(
            method,
            {**plain, "compress": codec_text(codec)},
            codec=codec,
            **others,
            optimizer=make_optimizer(settings),
            lr_schedule=parse_schedule(settings["lr_schedule"]),
            work=ClientWork(parse_local_work(settings["local_work"]), settings["client_dropout"], settings["deadline"]),
        )

    @classmethod
    def with_defaults(cls, method: Method, settings: Mapping[str, Any], **others: Any) -> RunSpec:
        """Return a run with these settings, and the declared defaults for all others."""
        return cls.from_settings(method, check_settings(ExperimentConfig, settings), **others)

    @property
    def config(self) -> dict[str, Any]:
        """All settings as plain values and text, with the parameters of method and detector."""
        of_nodes = {name: value for name, value in self.settings.items() if name not in SIMULATION_SETTINGS}
        return {
            **({**of_nodes, "engine": "flower"} if self.on_nodes else self.settings),
            "method": METHODS.spec(self.method),
            "detector": DETECTORS.spec(self.detector),
            "parameters": {**self.method.parameters(), **self.detector.parameters()},
        }

    def to_stored(self) -> dict[str, Any]:
        """Return the configuration as a run folder stores it."""
        about_own = self.task.to_stored(self.settings["seed"])
        given = {name: value for name, value in self.config.items() if value is not None}
        return {"fedtaco": __version__, **given, **({"own": about_own} if about_own else {})}

    def with_settings(self, **changes: Any) -> RunSpec:
        """Return the run with some plain settings replaced."""
        return replace(self, settings={**self.settings, **changes})

    def constants(self, clients: int, local_steps: int) -> Constants:
        """Return the constants of the run, given N and K."""
        return Constants(
            clients=clients,
            rounds=self.settings["rounds"],
            local_steps=local_steps,
            local_lr=self.settings["local_lr"],
            server_lr=self.settings["server_lr"],
            optimizer=self.optimizer,
            lr_schedule=self.lr_schedule,
        )

    def cohort_size(self, clients: int) -> int:
        """Return the number of clients in a round, given N."""
        return cohort_size(self.settings["participation"], clients)


def make_optimizer(settings: Mapping[str, Any]) -> LocalOptimizer:
    """Return the optimizer of local training that checked settings describe."""
    options = {name: settings[name] for name in ("weight_decay", "clip_norm")}
    if settings["optimizer"] == "sgd":
        options |= {name: settings[name] for name in ("momentum", "nesterov")}
    return OPTIMIZERS[settings["optimizer"]](**options)


def cohort_size(participation: float, clients: int) -> int:
    """Return the number of clients in a round.

    >>> cohort_size(0.25, clients=10), cohort_size(0.01, clients=10)
    (2, 1)
    """
    return max(1, round(participation * clients))
