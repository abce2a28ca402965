"""Rules about several settings together: combinations without an effect, and too much work for a client."""

from collections.abc import Mapping
from typing import Any

from fedtaco.errors import InvalidInput
from fedtaco.lr_schedule import parse_schedule
from fedtaco.unequal_work import parse_local_work

MAX_SAMPLES_PER_ROUND = 50_000_000
"""Maximum number of samples that a client trains on in a round, repeated ones included."""


def check_combinations(values: Mapping[str, Any]) -> None:
    """Raise InvalidInput if settings, each of which is valid, are not valid together."""
    samples = (values.get("local_steps") or 1) * (values.get("batch_size") or 1)
    check_samples_per_round(samples, "local_steps times batch_size")
    if "local_work" in values:
        parse_local_work(values["local_work"])
    if "optimizer" in values:
        _check_optimizer(values)


def check_samples_per_round(samples: int, product: str) -> None:
    """Raise InvalidInput if a client would train on too many samples in a round; ``product`` says what they are."""
    if samples > MAX_SAMPLES_PER_ROUND:
        raise InvalidInput(
            f"{product} is {samples:,}; a client may train on at most {MAX_SAMPLES_PER_ROUND:,} samples in a round."
        )


def _check_optimizer(values: Mapping[str, Any]) -> None:
    parse_schedule(values["lr_schedule"])
    optimizer, momentum = values["optimizer"], values["momentum"]
    if momentum and optimizer != "sgd":
        raise InvalidInput(f"momentum is {momentum:g}, but {optimizer} has its own; omit it, or use the optimizer sgd.")
    if values["nesterov"] and not momentum:
        raise InvalidInput("nesterov has no effect without momentum; set momentum, such as 0.9.")
    if optimizer == "adamw" and not values["weight_decay"]:
        raise InvalidInput("Without weight_decay, adamw is adam; set weight_decay, such as 0.01, or use adam.")
