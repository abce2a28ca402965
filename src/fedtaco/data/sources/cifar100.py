"""CIFAR-100: photographs of a hundred kinds of objects, 32 × 32 colour pixels, with the fine labels."""

from fedtaco.data.sources.base import DatasetInfo, HubColumns
from fedtaco.data.sources.cifar import CifarSource

CIFAR100 = CifarSource(
    DatasetInfo(
        name="cifar100",
        title="CIFAR-100, fine labels",
        shape=(3, 32, 32),
        classes=100,
        train=50000,
        test=10000,
        model="resnet18",
        partition="dirichlet:0.5",
        folders=("cifar-100-python",),
        files=("train", "test"),
        hub="uoft-cs/cifar100",
        citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
    ),
    HubColumns("img", "fine_label"),
    label_key="fine_labels",
)
