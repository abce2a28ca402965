"""Any partitioner of flwr-datasets, by class name: ``flwr:PathologicalPartitioner,num_classes_per_partition=2``."""

from __future__ import annotations

import inspect
import json
import warnings
from typing import Any

import numpy as np

from fedtaco.data.partitions.base import Labels, Partition
from fedtaco.errors import InvalidInput, unknown


def flower(labels: Labels, clients: int, seed: int, option: str) -> Partition:
    """Partition with a class of ``flwr_datasets.partitioner``; arguments follow its name after commas.

    The number of partitions, the column (``label``) and the seed are passed where the class takes them.
    """
    try:
        from datasets import Dataset
        from flwr_datasets import partitioner as known
    except ImportError as error:
        raise InvalidInput("Flower's partitioners need an extra: pip install 'fedtaco[flower-data]'.") from error
    name, *pairs = option.split(",")
    if name not in known.__all__:
        raise unknown("Flower partitioner", name, known.__all__)
    kind = getattr(known, name)
    takes = inspect.signature(kind).parameters
    given = {"num_partitions": clients, "partition_by": "label", "seed": seed}
    arguments = {key: value for key, value in given.items() if key in takes}
    for pair in pairs:
        key, _, text = pair.partition("=")
        if key not in takes:
            raise unknown(f"argument of {name}", key, takes)
        arguments[key] = _value(text)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            splitter = kind(**arguments)
            splitter.dataset = Dataset.from_dict({"label": labels.tolist(), "index": list(range(len(labels)))})
            parts = [np.array(splitter.load_partition(i)["index"], int) for i in range(splitter.num_partitions)]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"Flower's {name} refused: {error}") from error
    if len(parts) != clients:
        raise InvalidInput(f"Flower's {name} makes {len(parts)} partitions; set clients to that instead of {clients}.")
    return Partition(parts, notes=[str(warning.message) for warning in said])


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
