"""as_samples: every form of data gives the same batches, and other forms are refused with a sentence."""

from __future__ import annotations

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

from fedtaco import InvalidInput
from fedtaco.data import TensorSamples, as_samples
from fedtaco.data.samples import DatasetSamples

X, Y = torch.arange(12.0).reshape(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
CODES, MASK = torch.arange(18).reshape(6, 3), torch.tensor([[1, 1, 0]] * 6)
SOME = torch.tensor([4, 1])
FRAME = pd.DataFrame({"age": X[:, 0].double().numpy(), "pulse": X[:, 1].int().numpy()})


class Items(Dataset):
    """A dataset that yields what a function returns for an index."""

    def __init__(self, item, count=6):
        self.item, self.count = item, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.item(index)


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(X, Y, strict=True)


PAIRS = Items(lambda i: (X[i], int(Y[i])))
NAMED = Items(lambda i: {"input_ids": CODES[i], "attention_mask": MASK[i], "labels": int(Y[i])})


def sum_inputs(samples):
    """A collate function that makes one input of two."""
    return sum(x for x, _ in samples), torch.tensor([y for _, y in samples])


ONE_INPUT = {
    "tensors": (X, Y),
    "arrays": (X.numpy(), Y.numpy()),
    "read-only arrays": tuple(np.broadcast_to(part.numpy(), part.shape) for part in (X, Y)),
    "unsigned arrays": (X.numpy(), Y.numpy().astype(np.uint16)),
    "lists": (X.tolist(), Y.tolist()),
    "lists of tensors": (list(X), list(Y)),
    "lists of arrays": (list(X.numpy()), list(Y.numpy())),
    "one tensor per sample": tuple(zip(*((x, y) for x, y in zip(X, Y, strict=True)), strict=True)),
    "one array per sample": (tuple(X.numpy()), tuple(Y.numpy())),
    "frame and column": (FRAME.assign(kind=Y.numpy()), "kind"),
    "frame and numbered column": (pd.DataFrame({7: X[:, 0], 8: X[:, 1], 9: Y}), 9),
    "frame and series": (FRAME, pd.Series(Y.numpy())),
    "frame and nullable series": (FRAME, pd.Series(Y.numpy(), dtype="Int64")),
    "TensorDataset": TensorDataset(X, Y),
    "Dataset": PAIRS,
    "Subset": Subset(Items(lambda i: (X[i - 2], int(Y[i - 2])), 9), range(2, 8)),
    "ConcatDataset": ConcatDataset([Subset(PAIRS, [0, 1, 2]), Subset(PAIRS, [3, 4, 5])]),
    "DataLoader": DataLoader(PAIRS, batch_size=2, shuffle=True),
    "DataLoader of tensors": DataLoader(TensorDataset(X, Y), batch_size=4),
    "DataLoader of a list": DataLoader([(x, int(y)) for x, y in zip(X, Y, strict=True)]),
    "hub dataset": datasets.Dataset.from_dict({"x": X.tolist(), "kind": Y.tolist()}),
    "hub dataset, label first": datasets.Dataset.from_dict({"label": Y.tolist(), "x": X.tolist()}),
    "hub dataset and column": (datasets.Dataset.from_dict({"kind": Y.tolist(), "x": X.tolist()}), "kind"),
    "hub dataset of tensors": datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()}).with_format("torch"),
}


@pytest.mark.parametrize("form", ONE_INPUT)
def test_one_input(form):
    samples = as_samples(ONE_INPUT[form])
    assert len(samples) == 6
    x, y = samples.batch(SOME)
    assert torch.equal(x, X[SOME])
    assert x.dtype == torch.float32
    assert torch.equal(y, Y[SOME])
    part = samples.subset([5, 4, 1])
    assert len(part) == 3
    assert torch.equal(part.subset([1, 2]).batch(torch.tensor([0, 1]))[0], X[SOME])


HUB = datasets.Dataset.from_dict({"input_ids": CODES.tolist(), "attention_mask": MASK.tolist(), "label": Y.tolist()})
SEVERAL_INPUTS = {
    "mapping": {"input_ids": CODES, "attention_mask": MASK, "target": Y},
    "mapping and targets": ({"input_ids": CODES.numpy(), "attention_mask": MASK.tolist()}, Y),
    "mapping and key": ({"input_ids": CODES, "attention_mask": MASK, "outcome": Y}, "outcome"),
    "Dataset of mappings": NAMED,
    "Dataset and key": (Items(lambda i: {"input_ids": CODES[i], "attention_mask": MASK[i], "y": int(Y[i])}), "y"),
    "Dataset of pairs": Items(lambda i: ({"input_ids": CODES[i], "attention_mask": MASK[i]}, int(Y[i]))),
    "DataLoader": DataLoader(NAMED, batch_size=3),
    "hub dataset": HUB,
    "hub dataset and column": (HUB.rename_column("label", "outcome"), "outcome"),
    "hub dataset with a transform": HUB.with_transform(lambda rows: {k: torch.tensor(v) for k, v in rows.items()}),
}


@pytest.mark.parametrize("form", SEVERAL_INPUTS)
def test_several_inputs_by_name(form):
    x, y = as_samples(SEVERAL_INPUTS[form]).batch(SOME)
    assert list(x) == ["input_ids", "attention_mask"]
    assert torch.equal(x["input_ids"], CODES[SOME])
    assert torch.equal(x["attention_mask"], MASK[SOME])
    assert torch.equal(y, Y[SOME])


@pytest.mark.parametrize(
    "data",
    [
        ((CODES, X), Y),
        ((CODES.numpy(), FRAME), Y.tolist()),
        Items(lambda i: ((CODES[i], X[i]), int(Y[i]))),
        Items(lambda i: ([CODES[i], X[i]], int(Y[i]))),
    ],
    ids=["tensors", "array and frame", "Dataset of tuples", "Dataset of lists"],
)
def test_several_inputs_in_a_tuple(data):
    x, y = as_samples(data).batch(SOME)
    assert isinstance(x, tuple)
    assert torch.equal(x[0], CODES[SOME])
    assert torch.equal(x[1], X[SOME])
    assert torch.equal(y, Y[SOME])


def test_collate_function_of_a_loader_is_used():
    x, y = as_samples(DataLoader(PAIRS, collate_fn=sum_inputs)).batch(SOME)
    assert torch.equal(x, X[SOME].sum(0))
    assert torch.equal(y, Y[SOME])


def test_data_in_memory_are_not_copied():
    array = np.zeros((6, 2))
    samples = as_samples((array, Y))
    array[0] = 1
    assert samples.batch(torch.tensor([0]))[0].tolist() == [[1, 1]]
    assert isinstance(as_samples(DataLoader(TensorDataset(X, Y))), TensorSamples)
    assert isinstance(as_samples(PAIRS), DatasetSamples)
    assert as_samples(samples) is samples


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (pd.Series([0.5, 1.5]), torch.float32),
        (pd.Series([True, False]), torch.int64),
        (np.array([True, False]), torch.int64),
        (np.array([0.5, 1.5]), torch.float64),
        (np.eye(2, dtype=np.float32), torch.float32),
        (pd.DataFrame({"a": [0, 1], "b": [1, 1]}), torch.float32),
    ],
    ids=["float series", "bool series", "bools", "floats", "multi-hot", "multi-hot frame"],
)
def test_targets_are_labels_or_floats_of_any_shape(values, dtype):
    samples = as_samples((X[:2], values))
    assert samples.labels().dtype == samples.batch(torch.tensor([1]))[1].dtype == dtype
    assert samples.labels().tolist() == np.asarray(values).tolist()


def refused(message):
    return pytest.raises(InvalidInput, match=message)


REFUSED = {
    "number": (3, "Cannot read samples from int; pass a pair"),
    "list": ([X, Y], "Cannot read samples from list"),
    "tensor": (X, "Cannot read samples from Tensor"),
    "empty mapping": ({}, "Cannot read samples from dict"),
    "three tensors": ((X, X, Y), r"tuple of 3; give a pair .* \(\(first, second\), targets\)"),
    "too few targets": ((X, Y[:2]), "6 inputs but 2 targets"),
    "two inputs in a list": (([X, X], Y), "2 inputs but 6 targets"),
    "inputs of different lengths": (((X, X[:5]), Y), "5 inputs but 6 targets"),
    "text": ((["a", "b"], [0, 1]), "inputs cannot be read as numbers from a list"),
    "ragged list": (([[1, 2], [3]], [0, 1]), "from a list: expected sequence of length 2"),
    "text as target": ((X, ["a"] * 6), "targets cannot be read as numbers from a list"),
    "array of text": ((np.array([["a"]] * 6), Y), "inputs cannot be read as numbers from a ndarray"),
    "text by name": (({"name": ["a"] * 6}, Y), "input 'name' cannot be read as numbers from a list"),
    "one target": ((X, 3), "targets must have one entry per sample"),
    "no inputs": ((None, Y), "inputs cannot be read as numbers from a NoneType"),
    "IterableDataset": (Stream(), "Stream, whose samples cannot be accessed by index"),
    "loader of an IterableDataset": (DataLoader(Stream()), "Stream, whose samples cannot be accessed by index"),
    "hub stream": (HUB.to_iterable_dataset(), "IterableDataset, whose samples cannot be accessed by index"),
    "sampler": (DataLoader(PAIRS, sampler=SubsetRandomSampler([1])), r"a SubsetRandomSampler, .*data\.Subset instead"),
    "batch sampler": (DataLoader(PAIRS, batch_sampler=[[0, 1]]), "has a list, but the run itself draws the batches"),
    "frame alone": (FRAME, r"which column is the target; give a pair \(frame, 'column'\)"),
    "no such column": ((FRAME, "puls"), "no column 'puls'; did you mean 'pulse'"),
    "no input column": ((FRAME[["age"]], "age"), "no input columns"),
    "text column": ((FRAME.assign(name="Ada"), Y), "column 'name' has the type (str|object); convert it"),
    "date column": ((FRAME.assign(when=pd.Timestamp(0)), Y), "column 'when' has the type datetime"),
    "categories": ((FRAME, pd.Series(["a"] * 6, name="kind", dtype="category")), "column 'kind' has the type category"),
    "NaN in a column": ((FRAME.replace(2, np.nan), Y), "column 'age' has 1 missing values"),
    "NA in a column": ((FRAME, pd.Series([1, None] * 3, name="kind", dtype="Int64")), "'kind' has 3 missing values"),
    "no target": ({"x": X, "y": Y}, "entries x, y, and none of them is labels, label or target; name the target"),
    "no such key": (({"x": X, "y": Y}, "z"), "entries x, y, and 'z' is not one of them"),
    "target only": ({"labels": Y}, "have the single entry labels; they need inputs besides the target"),
    "hub target only": (HUB.select_columns("label"), "have the single entry label; they need inputs"),
    "hub splits": (
        datasets.DatasetDict(train=HUB, test=HUB),
        r"splits train, test; choose one, as in dataset\['train'\]",
    ),
    "hub text": (HUB.add_column("text", ["a"] * 6), r"column 'text' does not .*remove_columns\('text'\)"),
    "hub ragged": (datasets.Dataset.from_dict({"x": [[1], [2, 3]], "label": [0, 1]}), "column 'x' .* pad sequences"),
    "hub without target": (HUB.rename_column("label", "a"), "and none of them is labels, label or target"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_data_are_refused(kind):
    data, message = REFUSED[kind]
    with refused(message):
        as_samples(data)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (lambda i: X[i], "yields a Tensor; it must yield pairs"),
        (lambda i: (X[i], X[i], 0), "yields a list of 3; it must yield pairs .* several inputs as a tuple"),
        (lambda i: (X[i], "a"), "targets are a (list|tuple); they must be numbers"),
        (lambda i: ("a", 0), "input '0' is a str and not a tensor"),
        (lambda i: ({"text": "a", "x": X[i]}, 0), "input 'text' is a list and not a tensor"),
        (lambda i: ({"x": {"y": X[i]}}, 0), "input 'x' is a dict and not a tensor"),
        (lambda i: ((), 0), "inputs are a list; they must be tensors"),
        (lambda i: {"label": 0}, "have the single entry label; they need inputs besides the target"),
    ],
    ids=["input only", "three values", "text as target", "text", "text by name", "nested", "no inputs", "target only"],
)
def test_items_of_other_kinds_are_refused(item, message):
    with refused(message):
        as_samples(Items(item)).batch(SOME)


def test_a_key_needs_items_that_are_mappings():
    with refused("yields a list of 2; it must yield mappings with the key 'y'"):
        as_samples((PAIRS, "y")).batch(SOME)
