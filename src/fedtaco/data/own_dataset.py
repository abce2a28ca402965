"""Data of users' own, in the form of the datasets that fedtaco ships."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from fedtaco.data.joined import JoinedSamples
from fedtaco.data.own_data import as_samples
from fedtaco.data.samples import Samples, TensorSamples, class_labels
from fedtaco.data.sources.base import DatasetInfo, TaskData
from fedtaco.device import deterministic_torch
from fedtaco.errors import InvalidInput
from fedtaco.files import reason_of
from fedtaco.inputs import tensors_of
from fedtaco.printable import quoted
from fedtaco.registry import call_own, import_object
from fedtaco.tensor_digest import digest_tensors

BY_CLIENT = "by client"
"""The partition of data that are given for each client."""
DIGEST_BATCH, DIGEST_SAMPLES = 1024, 32
"""Samples that are read at once for a fingerprint, and the number that is read of a dataset that is not in memory."""


@deterministic_torch()
def own_dataset(name: str, train: Any, test: Any, *, per_client: bool) -> TaskData:
    """Return data of a user's own as a dataset.

    Parameters
    ----------
    name : str
        The name by which the data are recorded.
    train : object
        The training samples in any form that :func:`as_samples` takes, or a sequence of such, one per client.
    test : object or None
        The test samples in any of these forms.
    per_client : bool
        Whether ``train`` contains the samples of each client.

    Returns
    -------
    TaskData
        The samples, those of all clients joined; ``info.classes`` is 0 if the targets are not class labels in memory.

    Raises
    ------
    InvalidInput
        If data are of another form, or a client has no samples.

    Examples
    --------
    >>> x, y = torch.zeros(6, 4), torch.tensor([0, 1, 2, 0, 1, 1])
    >>> data = own_dataset("points", [(x[:2], y[:2]), (x[2:], y[2:])], None, per_client=True)
    >>> data.info.shape, data.info.classes, data.info.partition
    ((4,), 3, 'by client')
    """
    if per_client:
        if not isinstance(train, Iterable):
            raise InvalidInput(f"clients is {quoted(train)}; it must be a list with the samples of each client.")
        clients = [own_samples(f"Client {number}", data) for number, data in enumerate(train)]
        if not clients:
            raise InvalidInput("There are no clients; give at least one.")
        samples: Samples = JoinedSamples(clients)
    else:
        samples = own_samples("The training set", train)
    tested = None if test is None else own_samples("The test set", test)
    partition = BY_CLIENT if per_client else "iid"
    info = DatasetInfo(name, name, _input_shape(samples), _count_classes(samples, tested), "mlp", partition)
    return TaskData(info, samples, tested)


def load_own_dataset(spec: str) -> TaskData:
    """Call a user's function that returns ``(train, test)``.

    Parameters
    ----------
    spec : str
        ``package.module:function``. ``train`` is one set of samples, or a list with one set per client; ``test`` may
        be ``None``.

    Raises
    ------
    InvalidInput
        If the function cannot be imported, fails, or returns something else.
    """
    returned = call_own(spec, import_object(spec, "dataset", "function"))
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise InvalidInput(
            f"{spec} returned a {type(returned).__name__}; it must return a pair (train, test), of which test may be "
            "None and train may be a list with the samples of each client."
        )
    train, test = returned
    return own_dataset(spec, train, test, per_client=isinstance(train, list))


def count_own_clients(data: TaskData, partition: str | None, clients: int | None) -> int | None:
    """Return the number of clients of data that are given for each client; ``None`` for other data.

    Raises
    ------
    InvalidInput
        If the data are given for each client, but another partition or number of clients is wanted.
    """
    if not isinstance(data.train, JoinedSamples):
        return None
    count = len(data.train.parts)
    if partition not in (None, BY_CLIENT):
        raise InvalidInput(f"partition is '{partition}', but the data are given for each client; omit it.")
    if clients not in (None, count):
        raise InvalidInput(f"clients is {clients}, but there are data for {count} clients; omit it.")
    return count


def fingerprint(data: TaskData) -> str:
    """Return the SHA-256 of the training and test samples, and of which client holds which.

    Of samples that are not in memory, only some are read.
    """
    train = data.train.parts if isinstance(data.train, JoinedSamples) else [data.train]
    named = [(f"client {number}", samples) for number, samples in enumerate(train)]
    return fingerprint_samples(named if data.test is None else [*named, ("the test set", data.test)])


@deterministic_torch()
def fingerprint_samples(samples: Iterable[tuple[str, Samples]]) -> str:
    """Return the SHA-256 of samples, given with the names of their owners."""
    return digest_tensors(tensor for owner, own in samples for tensor in _digested(owner, own))


def _digested(owner: str, samples: Samples) -> Iterator[tuple[str, Tensor]]:
    yield f"{owner} size", torch.tensor(len(samples))
    with _reading(owner):
        torch.default_generator.manual_seed(0)  # a dataset may draw, for instance random crops
        for indices in _digested_indices(samples):
            x, y = samples.batch(indices)
            yield from ((f"{owner} x", tensor) for tensor in tensors_of(x))
            yield f"{owner} y", y


def _digested_indices(samples: Samples) -> Sequence[Tensor]:
    if isinstance(samples, TensorSamples):
        return torch.split(torch.arange(len(samples)), DIGEST_BATCH)
    return (torch.linspace(0, len(samples) - 1, min(len(samples), DIGEST_SAMPLES)).long(),)


def _input_shape(samples: Samples) -> tuple[int, ...]:
    """Return the shape of a sample's input; of several inputs, that of the first."""
    owner = "client 0" if isinstance(samples, JoinedSamples) else "the training set"
    with _reading(owner):
        x, _ = samples.batch(torch.tensor([0]))
    return tuple(tensors_of(x)[0].shape[1:])


def _count_classes(*sets: Samples | None) -> int:
    """Return the number of classes; 0 if the targets of the first set are not class labels."""
    labels = [None if samples is None else class_labels(samples) for samples in sets]
    return 0 if labels[0] is None else 1 + max(int(one.max()) for one in labels if one is not None)


@contextmanager
def _reading(owner: str) -> Iterator[None]:
    """Raise InvalidInput if the samples of ``owner`` cannot be read inside the block, which may draw random numbers."""
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    except Exception as error:
        raise InvalidInput(f"The samples of {owner} cannot be read: {reason_of(error)}") from error


def own_samples(owner: str, data: Any) -> Samples:
    """Return data of ``owner`` as samples; raise InvalidInput if they are of another form, or there are none."""
    try:
        samples = as_samples(data)
    except InvalidInput as error:
        raise InvalidInput(f"{owner}: {error}") from error
    if len(samples) == 0:
        raise InvalidInput(f"{owner} has no samples; omit it or give it some.")
    return samples
