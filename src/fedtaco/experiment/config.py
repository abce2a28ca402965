"""What an experiment is: the settings of one run, checked at the door."""

from __future__ import annotations

from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from fedtaco import __version__
from fedtaco.data import check_partition, dataset_info
from fedtaco.engines import EngineName
from fedtaco.errors import InvalidInput, unknown
from fedtaco.experiment.build import build_detector, build_method, check_overrides, parameters_of
from fedtaco.federation import Weighting
from fedtaco.models import check_model
from fedtaco.trust import Behaviour

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[FiniteFloat, Field(ge=0, le=1e30)]
Fraction = Annotated[FiniteFloat, Field(gt=0, le=1)]
Settings = TypeVar("Settings", bound=BaseModel)


class Training(BaseModel):
    """How clients train and how a round is made up, whatever the data."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    rounds: Count
    local_steps: Count
    batch_size: Count = 64
    local_lr: Rate = 0.01
    server_lr: Rate | None = None
    weighting: Weighting = "uniform"
    participation: Fraction = 1.0
    detector: str = "off"
    engine: EngineName = "auto"
    device: str = "cpu"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


class Experiment(Training):
    """One run: a method on a dataset. What is not given is the dataset's default.

    >>> config = Experiment.of(method="taco", dataset="digits", rounds=3)
    >>> config.local_steps, config.partition, config.parameters
    (50, 'groups', {'taco.delta_scale': 'accumulated'})
    """

    method: str
    dataset: str
    model: str
    partition: str
    clients: Count = 20
    freeloaders: Annotated[int, Field(ge=0)] = 0
    """How many clients misbehave; which ones, the seed decides."""
    behaviour: str | None = None
    """What those clients do; ``replay`` unless given."""
    validation: Annotated[FiniteFloat, Field(ge=0, lt=1)] = 0.0
    """The part of each client's samples that is held out, for tuning and for choosing a round."""
    target: Fraction
    parameters: dict[str, int | float | str] = Field(default_factory=dict)

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Check settings and fill in defaults; what is ``None`` counts as not given."""
        given = {name: value for name, value in settings.items() if value is not None}
        info = dataset_info(given.get("dataset", "digits"))
        defaults: dict[str, Any] = {
            "dataset": info.name,
            "model": info.model,
            "partition": info.partition,
            "rounds": info.rounds,
            "local_steps": info.local_steps,
            "local_lr": info.local_lr,
            "target": info.target,
        }
        if given.get("freeloaders"):
            defaults["behaviour"] = "replay"
        config = checked(cls, {**defaults, **given})
        check_model(config.model)
        check_partition(config.partition)
        _check_freeloaders(config)
        method = build_method(config.method, config.parameters)
        detector = build_detector(config.detector, config.parameters)
        check_overrides(config.parameters, [config.method], config.detector)
        return config.model_copy(update={"parameters": parameters_of(method, detector)})

    def stored(self) -> dict[str, Any]:
        """As it stands in a run folder."""
        return {"fedtaco": __version__, **self.model_dump(exclude_none=True)}


def _check_freeloaders(config: Experiment) -> None:
    if config.behaviour is not None:
        if config.freeloaders == 0:
            raise InvalidInput("behaviour changes nothing without freeloaders; say how many there are.")
        Behaviour.of(config.behaviour)
    if config.freeloaders > config.clients:
        raise InvalidInput(f"freeloaders is {config.freeloaders}, but there are only {config.clients} clients.")
    if config.freeloaders == config.clients and all(
        Behaviour.of(config.behaviour or "").rides(number, config.rounds) for number in range(1, config.rounds + 1)
    ):
        raise InvalidInput("Every client is a freeloader, so that nobody would train; leave at least one honest.")


def checked(kind: type[Settings], settings: dict[str, Any]) -> Settings:
    """Build settings, or say in one sentence what is wrong with them."""
    try:
        return kind(**settings)
    except ValidationError as failure:
        error = failure.errors()[0]
    name = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        raise unknown("setting", name, kind.model_fields)
    if error["type"] == "missing":
        raise InvalidInput(f"The setting {name} is missing.")
    expected = error["msg"].replace("Input should be", "it must be")
    raise InvalidInput(f"{name} is {error['input']!r}; {expected}.")
