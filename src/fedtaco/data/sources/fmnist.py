"""Fashion-MNIST: articles of clothing, in the format of MNIST."""

from dataclasses import replace

from fedtaco.data.sources.mnist import MNIST as _MNIST

FASHION_MNIST = replace(
    _MNIST,
    info=replace(
        _MNIST.info,
        name="fmnist",
        title="Fashion-MNIST",
        # The absolute folder is that of Debian's package dataset-fashion-mnist.
        folders=("fashion-mnist", "FashionMNIST/raw", "/usr/share/datasets/fashion-mnist"),
        hub="zalando-datasets/fashion_mnist",
        licence="MIT",
        citation="Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017",
    ),
)
FASHION_MNIST_UNIT = FASHION_MNIST.with_unit_pixels()
