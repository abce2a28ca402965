"""The settings of a Flower deployment, declared in the same way as the settings of a run."""

from typing import Annotated

from fedtaco.runs.settings import MAX_COUNT, SharedSettings, setting


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
