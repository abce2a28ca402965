"""Datasets, partitions and batches."""

from fedtaco.data.batches import StackedBatches, batch_plan, capped_batch_size, have_equal_shapes, steps_for_epochs
from fedtaco.data.datasets import fetch_dataset, hold_out, load_dataset, partition_dataset, split
from fedtaco.data.joined import JoinedSamples
from fedtaco.data.noise import add_noise
from fedtaco.data.number_search import NumberSearch, describe_sizes, find_large_in_batch, is_searchable
from fedtaco.data.own_data import as_samples
from fedtaco.data.own_dataset import (
    BY_CLIENT,
    count_own_clients,
    fingerprint,
    fingerprint_samples,
    load_own_dataset,
    own_dataset,
    own_samples,
)
from fedtaco.data.partitions import Partition, check_partition, is_own_partition, label_counts, partition
from fedtaco.data.samples import Samples, TensorSamples, class_labels
from fedtaco.data.sources import dataset_info, is_own_dataset
from fedtaco.data.sources.base import TaskData

__all__ = [
    "BY_CLIENT",
    "JoinedSamples",
    "NumberSearch",
    "Partition",
    "Samples",
    "StackedBatches",
    "TaskData",
    "TensorSamples",
    "add_noise",
    "as_samples",
    "batch_plan",
    "capped_batch_size",
    "check_partition",
    "class_labels",
    "count_own_clients",
    "dataset_info",
    "describe_sizes",
    "fetch_dataset",
    "find_large_in_batch",
    "fingerprint",
    "fingerprint_samples",
    "have_equal_shapes",
    "hold_out",
    "is_own_dataset",
    "is_own_partition",
    "is_searchable",
    "label_counts",
    "load_dataset",
    "load_own_dataset",
    "own_dataset",
    "own_samples",
    "partition",
    "partition_dataset",
    "split",
    "steps_for_epochs",
]
