"""Partitioners of flwr-datasets by class name: ``flwr:PathologicalPartitioner,num_classes_per_partition=2``."""

import inspect
import json
import warnings
from typing import Any

import numpy as np

from fedtaco.data.partitions.base import Labels, Partition
from fedtaco.errors import InvalidInput, unknown


def flower(labels: Labels, clients: int, seed: int, option: str) -> Partition:
    """Partition with a class of ``flwr_datasets.partitioner``.

    ``option`` is the name of the class, followed by ``,argument=value`` for each argument. The number of
    partitions, the label column and the seed are passed automatically if the class accepts them.
    """
    try:
        from datasets import Dataset
        from flwr_datasets import partitioner as partitioners
    except ImportError as error:
        raise InvalidInput("Flower's partitioners need an extra: pip install 'fedtaco[flower-data]'.") from error
    name, *pairs = option.split(",")
    if name not in partitioners.__all__:
        raise unknown("Flower partitioner", name, partitioners.__all__)
    partitioner_class = getattr(partitioners, name)
    accepted = inspect.signature(partitioner_class).parameters
    automatic = {"num_partitions": clients, "partition_by": "label", "seed": seed}
    arguments = {key: value for key, value in automatic.items() if key in accepted}
    for pair in pairs:
        key, _, text = pair.partition("=")
        if key not in accepted:
            raise unknown(f"argument of {name}", key, accepted)
        arguments[key] = _parse_value(text)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            partitioner = partitioner_class(**arguments)
            partitioner.dataset = Dataset.from_dict({"label": labels.tolist(), "index": list(range(len(labels)))})
            parts = [np.array(partitioner.load_partition(i)["index"], int) for i in range(partitioner.num_partitions)]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"Flower's {name} failed: {error}") from error
    if len(parts) != clients:
        raise InvalidInput(f"Flower's {name} makes {len(parts)} partitions; set clients to that instead of {clients}.")
    return Partition(parts, notes=[str(warning.message) for warning in caught])


def _parse_value(text: str) -> Any:
    """Parse a JSON value; anything else is a string."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
