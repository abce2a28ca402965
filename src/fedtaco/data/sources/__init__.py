"""The datasets, one file each. To add a dataset, add a file to this folder: its ``Source`` objects are found."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from fedtaco.data.sources.base import DatasetInfo, Source
from fedtaco.errors import unknown
from fedtaco.registry import names_code


def _find_all() -> Iterator[Source]:
    """Import every file of this folder and yield its module-level ``Source`` objects."""
    for module in iter_modules(__path__):
        contents = vars(import_module(f"{__name__}.{module.name}"))
        yield from (value for value in contents.values() if isinstance(value, Source))


SOURCES: dict[str, Source] = {source.info.name: source for source in _find_all()}
"""All datasets by name, in the order of their files."""


def is_own_dataset(spec: str) -> bool:
    """Return whether a text names a user's own function, as ``package.module:function``, and not a dataset."""
    return names_code(spec, {name.partition(":")[0] for name in SOURCES})


def find_source(name: str) -> Source:
    """Return the source of a dataset by name; raise InvalidInput if there is none."""
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
