"""CIFAR-10: photographs of ten kinds of objects, 32 × 32 colour pixels."""

from fedtaco.data.sources.base import DatasetInfo, HubColumns
from fedtaco.data.sources.cifar import CifarSource

CIFAR10 = CifarSource(
    DatasetInfo(
        name="cifar10",
        title="CIFAR-10",
        shape=(3, 32, 32),
        classes=10,
        train=50000,
        test=10000,
        model="cnn",
        partition="groups",
        folders=("cifar-10-batches-py",),
        files=(*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
        hub="uoft-cs/cifar10",
        citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
    ),
    HubColumns("img", "label"),
    label_key="labels",
)
CIFAR10_UNIT = CIFAR10.with_unit_pixels()
