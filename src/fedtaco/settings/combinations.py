"""Which settings go together. What depends on the data is checked where the data are, in ``experiment/``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedtaco.codecs import Codec
from fedtaco.errors import InvalidInput
from fedtaco.methods import Method
from fedtaco.records.formatting import pluralize
from fedtaco.trust import parse_behaviour

if TYPE_CHECKING:
    from fedtaco.settings.run_spec import RunSpec

MAX_SAMPLES_PER_ROUND = 50_000_000
"""Maximum number of samples that a client trains on in a round, repeated ones included."""


def check_combinations(spec: RunSpec) -> None:
    """Raise InvalidInput if settings of a run are not valid together."""
    settings = spec.settings
    samples = (settings["local_steps"] or 1) * settings["batch_size"]
    check_samples_per_round(samples, "local_steps times batch_size")
    _check_optimizer(spec)
    check_compression(spec.method, spec.codec)
    _check_participation(spec)
    _check_freeloaders(spec)
    if settings["fine_tune_steps"] and not settings["validation"] and not spec.task.client_tests:
        raise InvalidInput(
            "fine_tune_steps has no effect without samples of each client to evaluate on; hold some out (validation), "
            "or give some (client_tests)."
        )
    if spec.detector.is_active and not spec.method.inspectable:
        raise InvalidInput(f"No detector can judge the uploads of {spec.method.name}; use none (detector 'off').")
    if not spec.work.local_work.is_full:
        check_unequal_steps(spec.method)
    if spec.on_nodes:
        _check_nodes(spec)


def check_steps(method: Method, steps: Sequence[int]) -> None:
    """Raise InvalidInput if clients take different numbers of steps, and the method does not allow this."""
    if len(set(steps)) > 1:
        check_unequal_steps(method)


def check_unequal_steps(method: Method) -> None:
    """Raise InvalidInput if clients that take different numbers of steps cannot be combined with a method."""
    if method.unequal_steps is None:
        raise InvalidInput(
            f"{method.name} requires all clients to take equally many steps; use local_work full and one number of "
            "local_steps for all clients."
        )


def check_samples_per_round(samples: int, product: str) -> None:
    """Raise InvalidInput if a client would train on too many samples in a round; ``product`` says what they are."""
    if samples > MAX_SAMPLES_PER_ROUND:
        raise InvalidInput(
            f"{product} is {samples:,}; a client may train on at most {MAX_SAMPLES_PER_ROUND:,} samples in a round."
        )


def check_compression(method: Method, codec: Codec) -> None:
    """Raise InvalidInput if a method cannot use what a codec leaves of its uploads."""
    estimates = method.estimates_from is not None
    if codec.error_feedback and method.surveys:
        reason = f"needs error feedback, but {method.name} also sends answers without training"
    elif codec.error_feedback and method.needs_whole_uploads:
        reason = f"sends a part of an upload and the rest later, but {method.name} needs each upload as a whole"
    elif estimates and codec.is_sparse and not codec.error_feedback and codec.noise >= 1:
        reason = f"adds noise that grows from round to round in the memory of {method.name}"
    else:
        return
    raise InvalidInput(f"compress is '{codec}', which {reason}; use q8 or q4.")


def _check_optimizer(spec: RunSpec) -> None:
    settings, gradients = spec.settings, spec.method.cost.gradients
    optimizer, momentum = settings["optimizer"], settings["momentum"]
    if momentum and optimizer != "sgd":
        raise InvalidInput(f"momentum is {momentum:g}, but {optimizer} has its own; omit it, or use the optimizer sgd.")
    if settings["nesterov"] and not momentum:
        raise InvalidInput("nesterov has no effect without momentum; set momentum, such as 0.9.")
    if optimizer == "adamw" and not settings["weight_decay"]:
        raise InvalidInput("Without weight_decay, adamw is adam; set weight_decay, such as 0.01, or use adam.")
    if spec.optimizer.transforms_gradients and gradients > 1:
        name = type(spec.optimizer).__name__.lower()
        raise InvalidInput(
            f"optimizer is '{name}', which allows one gradient per step, but {spec.method.name} computes {gradients}; "
            "use sgd."
        )


def _check_participation(spec: RunSpec) -> None:
    method, settings = spec.method, spec.settings
    if not method.needs_all_clients:
        return
    if settings["participation"] < 1:
        raise InvalidInput(
            f"participation is {settings['participation']:g}, but {method.name} needs all clients; set it to 1."
        )
    if spec.work.dropout or spec.work.deadline is not None:
        raise InvalidInput(f"{method.name} needs all clients in every round; omit client_dropout and deadline.")


def _check_freeloaders(spec: RunSpec) -> None:
    count, clients, rounds = (spec.settings[name] for name in ("freeloaders", "clients", "rounds"))
    if spec.settings["behaviour"] is None:
        return
    if count == 0:
        raise InvalidInput("behaviour has no effect without freeloaders; set their number (freeloaders).")
    behaviour = parse_behaviour(spec.settings["behaviour"])
    if count > clients:
        raise InvalidInput(f"freeloaders is {count}, but there are only {pluralize(clients, 'client')}.")
    if count == clients and all(behaviour.freeloads(number, rounds) for number in range(1, rounds + 1)):
        raise InvalidInput("Every client is a freeloader, so no client would train; leave at least one honest.")


def _check_nodes(spec: RunSpec) -> None:
    """Check what only nodes of Flower cannot do."""
    method = spec.method
    if spec.settings["local_epochs"] is not None:
        check_unequal_steps(method)
    if method.needs_all_weights and spec.settings["weighting"] == "samples":
        raise InvalidInput(
            f"weighted_by_key is set, but {method.name} needs the weights of all nodes, also of absent ones, which "
            "the server does not know; omit it."
        )
    if spec.detector.long_uploads == "clip" and method.cost.memory:
        raise InvalidInput(
            f"long_uploads is clip, but the nodes of {method.name} remember what they sent, not what is left of it; "
            "set it to drop."
        )
