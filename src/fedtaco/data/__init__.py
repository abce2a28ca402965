"""Datasets, partitions and batches."""

from fedtaco.data.datasets import fetch_dataset, hold_out, load_dataset, partition_dataset, split
from fedtaco.data.joined import JoinedSamples
from fedtaco.data.own import BY_CLIENT, count_own_clients, fingerprint, load_own_dataset, own_dataset
from fedtaco.data.partitions import Partition, check_partition, is_own_partition, label_counts, partition
from fedtaco.data.samples import Samples, StackedBatches, TensorSamples, as_samples, batch_plan, class_labels
from fedtaco.data.sources import dataset_info, is_own_dataset
from fedtaco.data.sources.base import TaskData

__all__ = [
    "BY_CLIENT",
    "JoinedSamples",
    "Partition",
    "Samples",
    "StackedBatches",
    "TaskData",
    "TensorSamples",
    "as_samples",
    "batch_plan",
    "check_partition",
    "class_labels",
    "count_own_clients",
    "dataset_info",
    "fetch_dataset",
    "fingerprint",
    "hold_out",
    "is_own_dataset",
    "is_own_partition",
    "label_counts",
    "load_dataset",
    "load_own_dataset",
    "own_dataset",
    "partition",
    "partition_dataset",
    "split",
]
