"""What is known of each dataset: where it comes from, what it holds, and the settings experiments take by default."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fedtaco.errors import unknown

SHAKESPEARE_LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's alphabet of 80 symbols."""


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset before it is loaded."""

    name: str
    title: str
    shape: tuple[int, ...]
    classes: int
    train: int | None
    """Training samples as published; ``None`` where it depends on the preprocessing."""
    test: int | None
    model: str
    partition: str
    rounds: int
    local_steps: int
    target: float
    """The test accuracy that rounds-to-accuracy counts towards."""
    local_lr: float = 0.01
    folders: tuple[str, ...] = ()
    """Where its files lie below the data folder, or absolute."""
    files: tuple[str, ...] = ()
    """The files that must be there."""
    hub: str = ""
    """Where ``fedtaco data fetch`` gets it."""
    licence: str = "none stated"
    citation: str = ""


def _info(*entries: DatasetInfo) -> dict[str, DatasetInfo]:
    return {entry.name: entry for entry in entries}


_IDX = tuple(f"{part}-{kind}.gz" for part in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
_adult = partial(
    DatasetInfo,
    classes=2,
    train=32561,
    test=16281,
    model="mlp",
    partition="dirichlet:0.5",
    rounds=50,
    local_steps=100,
    target=0.78,
    folders=("adult",),
    files=("adult.data", "adult.test"),
    hub="https://archive.ics.uci.edu/static/public/2/adult.zip",
    licence="CC BY 4.0",
    citation="Becker and Kohavi, Adult, UCI Machine Learning Repository, 1996",
)
_femnist = partial(
    DatasetInfo,
    shape=(1, 28, 28),
    train=None,
    test=None,
    model="cnn",
    partition="dirichlet:0.2",
    rounds=100,
    local_steps=100,
    folders=("femnist",),
    files=("train", "test"),
    hub="flwrlabs/femnist",
    citation="Caldas et al., LEAF: a benchmark for federated settings, 2018",
)

DATASETS: dict[str, DatasetInfo] = _info(
    DatasetInfo(
        "digits",
        "Handwritten digits of scikit-learn (embedded)",
        shape=(1, 8, 8),
        classes=10,
        train=1437,
        test=360,
        model="mlp:64-32",
        partition="groups",
        rounds=20,
        local_steps=50,
        local_lr=0.05,
        target=0.9,
        licence="CC BY 4.0",
        citation="Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI, 1998",
    ),
    DatasetInfo(
        "mnist",
        "MNIST",
        shape=(1, 28, 28),
        classes=10,
        train=60000,
        test=10000,
        model="cnn",
        partition="groups",
        rounds=100,
        local_steps=100,
        target=0.9,
        folders=("mnist", "MNIST/raw"),
        files=_IDX,
        hub="ylecun/mnist",
        citation="LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, 1998",
    ),
    DatasetInfo(
        "fmnist",
        "Fashion-MNIST",
        shape=(1, 28, 28),
        classes=10,
        train=60000,
        test=10000,
        model="cnn",
        partition="groups",
        rounds=100,
        local_steps=100,
        target=0.7,
        folders=("fashion-mnist", "FashionMNIST/raw", "/usr/share/datasets/fashion-mnist"),
        files=_IDX,
        hub="zalando-datasets/fashion_mnist",
        licence="MIT",
        citation="Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017",
    ),
    _femnist("femnist", "FEMNIST, 62 classes (LEAF)", classes=62, target=0.7),
    _femnist("femnist:digits", "FEMNIST, the 10 digits", classes=10, target=0.9),
    DatasetInfo(
        "svhn",
        "Street View House Numbers, cropped",
        shape=(3, 32, 32),
        classes=10,
        train=73257,
        test=26032,
        model="cnn",
        partition="groups",
        rounds=100,
        local_steps=1000,
        target=0.7,
        folders=("svhn",),
        files=("train_32x32.mat", "test_32x32.mat"),
        hub="ufldl-stanford/svhn",
        licence="non-commercial use",
        citation="Netzer et al., Reading digits in natural images with unsupervised feature learning, 2011",
    ),
    DatasetInfo(
        "cifar10",
        "CIFAR-10",
        shape=(3, 32, 32),
        classes=10,
        train=50000,
        test=10000,
        model="cnn",
        partition="groups",
        rounds=200,
        local_steps=1000,
        target=0.5,
        folders=("cifar-10-batches-py",),
        files=(*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
        hub="uoft-cs/cifar10",
        citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
    ),
    DatasetInfo(
        "cifar100",
        "CIFAR-100, fine labels",
        shape=(3, 32, 32),
        classes=100,
        train=50000,
        test=10000,
        model="resnet18",
        partition="dirichlet:0.5",
        rounds=200,
        local_steps=200,
        target=0.54,
        folders=("cifar-100-python",),
        files=("train", "test"),
        hub="uoft-cs/cifar100",
        citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
    ),
    _adult("adult", "Adult, 123 binary features", shape=(123,)),
    _adult("adult:standardized", "Adult, 108 standardised features", shape=(108,)),
    DatasetInfo(
        "shakespeare",
        "Shakespeare, next character (LEAF)",
        shape=(80,),
        classes=len(SHAKESPEARE_LETTERS),
        train=None,
        test=None,
        model="lstm",
        partition="natural",
        rounds=50,
        local_steps=200,
        local_lr=1.0,
        target=0.5,
        folders=("shakespeare",),
        files=("train", "test"),
        hub="flwrlabs/shakespeare",
        citation="Caldas et al., LEAF: a benchmark for federated settings, 2018",
    ),
)


def dataset_info(name: str) -> DatasetInfo:
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    return DATASETS[name]
