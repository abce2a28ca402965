"""A damaged cache is refused with a sentence, or written again if the publisher's files are there."""

from __future__ import annotations

import json

import pytest
import torch
from published import write_leaf, write_mnist
from refusal import as_cases
from safetensors.torch import load_file, save_file

from fedtaco import InvalidInput
from fedtaco.data import load_dataset
from fedtaco.data.cache import cache_folder
from fedtaco.data.sources import SOURCES

FACTS = {"schema": 1, "origin": "ylecun/mnist", "mean": [0.5], "deviation": [0.25]}
CACHED = "expected a cached dataset"


def without(name):
    return {key: value for key, value in FACTS.items() if key != name}


BYTES = {
    "empty": (lambda whole: b"", CACHED),
    "cut in the header": (lambda whole: whole[:20], CACHED),
    "cut in the tensors": (lambda whole: whole[:-1], CACHED),
    "text": (lambda whole: b"not a safetensors file", CACHED),
    "a header of 2^63 bytes": (lambda whole: b"\xff" * 7 + b"\x7f" + whole[8:], CACHED),
    "a header that is not JSON": (lambda whole: whole[:8] + b"}" + whole[9:], CACHED),
    "another dtype in the header": (lambda whole: whole.replace(b'"U8"', b'"Z8"'), CACHED),
}
METADATA = {
    "no metadata": (None, CACHED),
    "no facts": ({"format": "pt"}, "it lacks facts"),
    "facts that are not JSON": ({"facts": "{"}, CACHED),
    "nested facts": ({"facts": "[" * 100_000}, "recursion"),
    "facts in a list": ({"facts": "[1]"}, CACHED),
    "no schema": (without("schema"), "it lacks schema"),
    "no origin": (without("origin"), "its facts are incomplete"),
    "no mean": (without("mean"), "it lacks mean"),
    "a mean that is a number": (FACTS | {"mean": 0.5}, CACHED),
    "text as a mean": (FACTS | {"mean": ["half"]}, CACHED),
    "a mean of NaN": (FACTS | {"mean": [float("nan")]}, "is not between 0 and 1"),
    "a mean of 10^400": (FACTS | {"mean": [10**400]}, "is not between 0 and 1"),
    "two means": (FACTS | {"mean": [0.5, 0.5]}, "one mean and one standard deviation per channel"),
    "a deviation of 0": (FACTS | {"deviation": [0]}, "is not between 0 and 1"),
}
X, Y = torch.zeros(10, 1, 28, 28, dtype=torch.uint8), torch.arange(10, dtype=torch.uint8)
TENSORS = {
    "no inputs": ({"y": Y}, "it lacks x"),
    "no labels": ({"x": X}, "it lacks y"),
    "inputs of another shape": ({"x": X[:, :, 1:], "y": Y}, r"inputs of shape \(10, 1, 27, 28\)"),
    "fewer inputs than labels": ({"x": X[:9], "y": Y}, r"\(9, 1, 28, 28\) and 10 labels"),
    "inputs without dimensions": ({"x": X[0, 0, 0, 0].clone(), "y": Y}, r"inputs of shape \(\)"),
    "fewer samples": ({"x": X[:9], "y": Y[:9]}, "holds 9 training samples of MNIST; 10 were published"),
    "no samples": ({"x": X[:0], "y": Y[:0]}, "holds 0 training samples"),
    "floating-point inputs": ({"x": X.float(), "y": Y}, "inputs of type float32"),
    "bfloat16 inputs": ({"x": X.bfloat16(), "y": Y}, CACHED),
    "floating-point labels": ({"x": X, "y": Y.float()}, "labels of type float32"),
    "truth values as labels": ({"x": X, "y": Y > 5}, "labels of type bool"),
    "unsigned 64-bit labels": ({"x": X, "y": Y.to(torch.uint64)}, "labels of type uint64"),
    "labels in a column": ({"x": X, "y": Y[:, None].clone()}, r"labels of type uint8 and shape \(10, 1\)"),
    "a single label": ({"x": X, "y": Y[0].clone()}, r"labels of type uint8 and shape \(\)"),
    "a label beyond the classes": ({"x": X, "y": Y + 1}, "labels from 1 to 10; MNIST has the labels 0 to 9"),
    "a negative label": ({"x": X, "y": Y.long() - 1}, "labels from -1 to 8"),
    "users of another number": ({"x": X, "y": Y, "user": Y[:5].clone()}, r"users of type uint8 and shape \(5,\)"),
    "floating-point users": ({"x": X, "y": Y, "user": Y.float()}, "users of type float32"),
}


def write(root, tensors=None, metadata=FACTS):
    folder = cache_folder(root, "mnist")
    folder.mkdir(parents=True, exist_ok=True)
    if metadata is not None and "facts" not in metadata and "format" not in metadata:
        metadata = {"facts": json.dumps(metadata)}
    for split in ("train", "test"):
        save_file(tensors or {"x": X, "y": Y}, folder / f"{split}.safetensors", metadata)
    return folder


def check_damage(root, words):
    """Check that the cache is refused, that it is not listed, and that it is written again if the files are there."""
    with pytest.raises(InvalidInput, match=words) as error:
        load_dataset("mnist", root)
    assert "etch " in str(error.value)
    assert str(error.value).isprintable()
    assert str(cache_folder(root, "mnist")) in str(error.value)
    assert SOURCES["mnist"].availability(root) == "–"
    write_mnist(root / "mnist", 10, 10)
    assert len(load_dataset("mnist", root).train) == 10
    (root / "mnist").rename(root / "away")
    assert SOURCES["mnist"].availability(root) == "cached"


@pytest.fixture(autouse=True)
def counts(set_counts):
    set_counts("mnist", 10, 10)


def test_a_whole_cache_is_read(tmp_path):
    write(tmp_path)
    assert load_dataset("mnist", tmp_path).train.prepare.mean == (0.5,)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(("damage", "words"), as_cases(BYTES))
def test_a_damaged_file_is_refused(tmp_path, split, damage, words):
    file = write(tmp_path) / f"{split}.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    check_damage(tmp_path, words)


@pytest.mark.parametrize(("metadata", "words"), as_cases(METADATA))
def test_damaged_facts_are_refused(tmp_path, metadata, words):
    write(tmp_path, metadata=metadata)
    check_damage(tmp_path, words)


@pytest.mark.parametrize(("tensors", "words"), as_cases(TENSORS))
def test_tensors_of_another_dataset_are_refused(tmp_path, tensors, words):
    write(tmp_path, {name: tensor.contiguous() for name, tensor in tensors.items()})
    check_damage(tmp_path, words)


def test_splits_of_different_caches_are_refused(tmp_path):
    test = write(tmp_path) / "test.safetensors"
    save_file(load_file(test), test, {"facts": json.dumps(FACTS | {"mean": [0.25]})})
    check_damage(tmp_path, "differ from those of the other split")


def test_a_cache_of_another_version_is_ignored(tmp_path):
    write(tmp_path, metadata=FACTS | {"schema": 2})
    with pytest.raises(InvalidInput, match="MNIST was not found"):
        load_dataset("mnist", tmp_path)


def test_cached_text_outside_the_alphabet_is_refused(tmp_path):
    for part in ("train", "test"):
        write_leaf(tmp_path / "shakespeare" / part, {"HAMLET": (["a" * 80], ["t"])})
    load_dataset("shakespeare", tmp_path)
    (tmp_path / "shakespeare").rename(tmp_path / "away")
    file = cache_folder(tmp_path, "shakespeare") / "train.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-81] + b"\x50" * 80 + content[-1:])  # the window is followed by one label
    with pytest.raises(InvalidInput, match="not positions in LEAF's alphabet"):
        load_dataset("shakespeare", tmp_path)
