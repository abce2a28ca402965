"""Datasets, partitions and batches."""

from fedtaco.data.datasets import DATASETS, Data, DatasetInfo, dataset_info, load_dataset
from fedtaco.data.partition import PARTITIONS, Partition, check_partition, partition
from fedtaco.data.samples import DatasetSamples, Samples, TensorSamples, as_samples, batch_plan

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "Data",
    "DatasetInfo",
    "DatasetSamples",
    "Partition",
    "Samples",
    "TensorSamples",
    "as_samples",
    "batch_plan",
    "check_partition",
    "dataset_info",
    "load_dataset",
    "partition",
]
