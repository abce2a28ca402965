"""Datasets, partitions and batches."""

from fedtaco.data.catalog import DATASETS, DatasetInfo, dataset_info
from fedtaco.data.datasets import Data, Indices, hold_out, load_dataset, partition_of, split
from fedtaco.data.partitions import PARTITIONS, Partition, check_partition, partition
from fedtaco.data.samples import DatasetSamples, Samples, StackedBatches, TensorSamples, as_samples, batch_plan

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "Data",
    "DatasetInfo",
    "DatasetSamples",
    "Indices",
    "Partition",
    "Samples",
    "StackedBatches",
    "TensorSamples",
    "as_samples",
    "batch_plan",
    "check_partition",
    "dataset_info",
    "hold_out",
    "load_dataset",
    "partition",
    "partition_of",
    "split",
]
