"""The settings of a Flower deployment, declared in the same way as the settings of a run."""

from collections.abc import Mapping
from typing import Annotated, Any

from fedtaco.codecs import check_compression, parse_codec
from fedtaco.errors import InvalidInput
from fedtaco.methods import Method, check_optimizer, check_participation, check_unequal_steps
from fedtaco.printable import quoted
from fedtaco.runs.constants import make_optimizer
from fedtaco.runs.settings import MAX_COUNT, SharedSettings, setting
from fedtaco.trust import Detector


class StrategySettings(SharedSettings, total=False):
    """Keyword arguments of :class:`~fedtaco.flower.FedStrategy`, besides those in its signature."""

    fraction_train: Annotated[float, setting(1.0, "Fraction of the clients in a round.", low=0, open_low=True, high=1)]
    min_train_nodes: Annotated[int, setting(2, "Minimum number of nodes in a round.", low=1)]
    min_available_nodes: Annotated[int, setting(2, "Number of nodes that must be connected.", low=1)]
    weighted_by_key: Annotated[
        str | None, setting(None, "Metric that weights replies, such as num-examples; all count alike by default.")
    ]
    fraction_evaluate: Annotated[
        float, setting(1.0, "Fraction of the connected nodes that evaluates the model.", low=0, high=1)
    ]
    clients: Annotated[
        int | None,
        setting(None, "Number of nodes in the run; those connected at its start by default.", low=1, high=MAX_COUNT),
    ]
    dataset: Annotated[str, setting("own data", "Name of the data in the report.")]
    target: Annotated[float, setting(0.9, "Accuracy for rounds-to-accuracy in the report.", low=0, high=1)]


def check_method(method: Method, settings: Mapping[str, Any]) -> None:
    """Raise InvalidInput if a method cannot be combined with checked settings."""
    check_optimizer(method, make_optimizer(settings))
    check_compression(method, parse_codec(settings["compress"]))
    check_participation(method, settings["fraction_train"])
    if settings["local_epochs"] is not None or settings["local_work"] != "full":
        check_unequal_steps(method)
    key = settings["weighted_by_key"]
    if method.needs_all_weights and key is not None:
        raise InvalidInput(
            f"weighted_by_key is {quoted(key)}, but {method.name} needs the weights of all nodes, also of absent ones, "
            "which the server does not know; omit it."
        )


def check_clipping(method: Method, detector: Detector) -> None:
    """Raise InvalidInput if the detector clips uploads and the method's nodes remember what they sent."""
    if detector.long_uploads == "clip" and method.cost.memory:
        raise InvalidInput(
            f"long_uploads is clip, but the nodes of {method.name} remember what they sent, not what is left of it; "
            "set it to drop."
        )


def refuse_simulated_failures(settings: Mapping[str, Any]) -> None:
    """Raise InvalidInput for settings that let simulated clients fail."""
    for name in ("client_dropout", "deadline"):
        if settings.get(name) is not None:
            raise InvalidInput(
                f"{name} is for simulated clients; real nodes fail by themselves: omit it, and limit the wait for "
                "replies by the timeout of start()."
            )
