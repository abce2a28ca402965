"""Datasets, partitions and batches."""

from fedtaco.data.batches import StackedBatches, batch_plan, have_equal_shapes, steps_for_epochs
from fedtaco.data.datasets import fetch_dataset, hold_out, load_dataset, partition_dataset, split
from fedtaco.data.noise import add_noise
from fedtaco.data.own_data import as_samples
from fedtaco.data.partitions import Partition, check_partition, label_counts, partition
from fedtaco.data.samples import Samples, TensorSamples
from fedtaco.data.sources import dataset_info

__all__ = [
    "Partition",
    "Samples",
    "StackedBatches",
    "TensorSamples",
    "add_noise",
    "as_samples",
    "batch_plan",
    "check_partition",
    "dataset_info",
    "fetch_dataset",
    "have_equal_shapes",
    "hold_out",
    "label_counts",
    "load_dataset",
    "partition",
    "partition_dataset",
    "split",
    "steps_for_epochs",
]
