"""MNIST: handwritten digits, 28 × 28 grey pixels."""

from fedtaco.data.sources.base import DatasetInfo, HubColumns
from fedtaco.data.sources.idx import IDX_FILES, IdxSource

MNIST = IdxSource(
    DatasetInfo(
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
    ),
    HubColumns("image", "label"),
)
MNIST_UNIT = MNIST.with_unit_pixels()
