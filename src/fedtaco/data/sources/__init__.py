"""The datasets, one file per family. A new dataset is a new file in this folder and a new entry in :data:`SOURCES`."""

from fedtaco.data.sources import adult, cifar, digits, femnist, mnist, shakespeare, svhn
from fedtaco.data.sources.base import DatasetInfo, Source
from fedtaco.errors import unknown

SOURCES: dict[str, Source] = {
    source.info.name: source
    for source in (
        digits.DIGITS,
        mnist.MNIST,
        mnist.FASHION_MNIST,
        femnist.FEMNIST,
        femnist.FEMNIST_DIGITS,
        svhn.SVHN,
        cifar.CIFAR10,
        cifar.CIFAR100,
        adult.ADULT,
        adult.ADULT_STANDARDIZED,
        shakespeare.SHAKESPEARE,
    )
}
"""All datasets by name, in the order in which they are listed."""


def find_source(name: str) -> Source:
    """Return a dataset by name; raise InvalidInput if there is none."""
    if name not in SOURCES:
        raise unknown("dataset", name, SOURCES)
    return SOURCES[name]


def dataset_info(name: str) -> DatasetInfo:
    """Return the facts about a dataset.

    Parameters
    ----------
    name : str
        Name of the dataset, as listed by ``fedtaco data list``.

    Returns
    -------
    DatasetInfo
        What is known about the dataset before it is loaded.

    Raises
    ------
    InvalidInput
        If there is no dataset of this name.

    Examples
    --------
    >>> dataset_info("mnist").shape
    (1, 28, 28)
    """
    return find_source(name).info
