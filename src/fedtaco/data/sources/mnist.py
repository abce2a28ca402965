"""MNIST and Fashion-MNIST: handwritten digits and articles of clothing, 28 × 28 grey pixels."""

from dataclasses import replace

from fedtaco.data.sources.base import DatasetInfo, HubColumns
from fedtaco.data.sources.idx import IDX_FILES, IdxSource

_INFO = DatasetInfo(
    name="mnist",
    title="MNIST",
    shape=(1, 28, 28),
    classes=10,
    train=60000,
    test=10000,
    model="cnn",
    partition="groups",
    folders=("mnist", "MNIST/raw"),
    files=IDX_FILES,
    hub="ylecun/mnist",
    citation="LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, 1998",
)
_FASHION_INFO = replace(
    _INFO,
    name="fmnist",
    title="Fashion-MNIST",
    # The absolute folder is that of Debian's package dataset-fashion-mnist.
    folders=("fashion-mnist", "FashionMNIST/raw", "/usr/share/datasets/fashion-mnist"),
    hub="zalando-datasets/fashion_mnist",
    licence="MIT",
    citation="Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017",
)

MNIST = IdxSource(_INFO, HubColumns("image", "label"))
FASHION_MNIST = IdxSource(_FASHION_INFO, HubColumns("image", "label"))
