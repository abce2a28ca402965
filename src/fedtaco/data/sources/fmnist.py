"""Fashion-MNIST: articles of clothing, 28 × 28 grey pixels."""

from fedtaco.data.sources.base import DatasetInfo, HubColumns
from fedtaco.data.sources.idx import IDX_FILES, IdxSource

FASHION_MNIST = IdxSource(
    DatasetInfo(
        name="fmnist",
        title="Fashion-MNIST",
        shape=(1, 28, 28),
        classes=10,
        train=60000,
        test=10000,
        model="cnn",
        partition="groups",
        # The absolute folder is that of Debian's package dataset-fashion-mnist.
        folders=("fashion-mnist", "FashionMNIST/raw", "/usr/share/datasets/fashion-mnist"),
        files=IDX_FILES,
        hub="zalando-datasets/fashion_mnist",
        licence="MIT",
        citation="Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017",
    ),
    HubColumns("image", "label"),
)
