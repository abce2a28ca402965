"""Damaged or hostile LEAF files."""

from __future__ import annotations

import json

import pytest
from published import write_leaf
from refusal import HTML, as_cases, check_refused

from fedtaco.data import load_dataset

LEAF = "LEAF's JSON with 'users' and 'user_data'"
INK = [[0.0] * 392 + [1.0] * 392] * 2
IMAGES = "the images are not lists of 784 numbers from 0 to 1"
LABELS = "expected valid samples of 'ann' .*the labels are not a list of whole numbers"
WINDOW = ("To be, or not to be: " * 4)[:80]
TEXT = "does not have 80 characters, or a target is not a single character"


def record(x=INK, y=(1, 2), user="ann", **changes):
    return json.dumps({"users": [user], "user_data": {user: {"x": x, "y": y}}} | changes).encode()


def pixel(value):
    """Return a record in which one pixel is written as ``value``."""
    return record(x=[["here", *INK[0][1:]], INK[1]]).replace(b'"here"', value)


FEMNIST = {
    "empty": (b"", LEAF),
    "HTML page": (HTML, LEAF),
    "cut": (record()[:-5], LEAF),
    "null bytes": (bytes(100), LEAF),
    "not UTF-8": (record().replace(b"ann", b"\xff"), LEAF),
    "nested lists": (b"[" * 100_000, "recursion"),
    "nested objects": (b'{"a":' * 100_000, "recursion"),
    "nested samples": (record().replace(b"[[", b"[" * 50_000), "recursion"),
    "a number": (b"7", LEAF),
    "a list": (b"[]", LEAF),
    "no users": (b'{"user_data": {}}', "it lacks users"),
    "no user_data": (b'{"users": ["ann"]}', "it lacks user_data"),
    "users as a number": (record(users=7), LEAF),
    "users as text": (record(users="ann"), "it lacks a"),
    "users as lists": (record(users=[["ann"]]), LEAF),
    "a user without samples": (record(users=["ann", "bob"]), "it lacks bob"),
    "terminal escapes in a name": (record(users=["\x1b[2J\nbob"]), r"it lacks \[2J bob"),
    "a name that is not Unicode": (record(user="\ud800", y=[1, -1]), "expected valid samples of ' '|of ''"),
    "a list as user_data": (record(user_data=[1]), LEAF),
    "a number as samples": (record(user_data={"ann": 7}), "expected valid samples of 'ann'"),
    "no inputs": (record(user_data={"ann": {"y": [1]}}), "it lacks x"),
    "no labels": (record(user_data={"ann": {"x": INK}}), "it lacks y"),
    "text as inputs": (record(x="ab"), "not lists of the same length"),
    "an object as inputs": (record(x={"0": INK[0], "1": INK[1]}), "not lists of the same length"),
    "fewer labels than inputs": (record(y=[1]), "not lists of the same length"),
    "the label 999": (record(y=[1, 999]), "labels must be from 0 to 255, but one is 999"),
    "the label 62": (record(y=[1, 62]), "labels from 1 to 62; FEMNIST, 62 classes .* has the labels 0 to 61"),
    "the label -1": (record(y=[1, -1]), "labels must be from 0 to 255, but one is -1"),
    "the label 1.5": (record(y=[1, 1.5]), LABELS),
    "the label true": (record(y=[1, True]), LABELS),
    "the label null": (record(y=[1, None]), LABELS),
    "text as a label": (record(y=[1, "2"]), LABELS),
    "a label of 4000 digits": (record().replace(b"2]", b"2" * 4000 + b"]"), "labels must be from 0 to 255"),
    "a label of 5000 digits": (record().replace(b"2]", b"2" * 5000 + b"]"), LEAF),
    "images of 783 pixels": (record(x=[row[1:] for row in INK]), IMAGES),
    "images of different sizes": (record(x=[INK[0], INK[0][1:]]), "expected valid samples of 'ann'"),
    "numbers as images": (record(x=[1, 2]), IMAGES),
    "nested pixels": (pixel(b"[1]"), "expected valid samples of 'ann'"),
    "text as a pixel": (pixel(b'"ink"'), "expected valid samples of 'ann'"),
    "null as a pixel": (pixel(b"null"), IMAGES),
    "the pixel 2": (pixel(b"2"), IMAGES),
    "the pixel -0.1": (pixel(b"-0.1"), IMAGES),
    "the pixel 1e300": (pixel(b"1e300"), IMAGES),
    "the pixel 1e999": (pixel(b"1e999"), IMAGES),
    "a pixel of 4000 digits": (pixel(b"1" * 4000), "expected valid samples of 'ann'"),
    "the pixel NaN": (pixel(b"NaN"), IMAGES),
    "the pixel Infinity": (pixel(b"Infinity"), IMAGES),
    "users without any samples": (record(x=[], y=[]), "JSON files with at least one sample"),
    "equal pixels": (record(x=[[1.0] * 784] * 2), "the standard deviation of a channel is not between 0 and 1"),
}
SHAKESPEARE = {
    "an unknown character": (record(["é" * 80], ["t"]), "the text contains 'é', which is not one of LEAF's 80"),
    "terminal escapes": (record(["\x1b" * 80], ["t"]), "the text contains '.x1b'"),
    "half of a surrogate pair": (record(["\ud800" * 80], ["t"]), "which is not one of LEAF's 80"),
    "a short window": (record([WINDOW[1:]], ["t"]), TEXT),
    "a long target": (record([WINDOW], ["to"]), TEXT),
    "targets of lengths 0 and 2": (record([WINDOW] * 2, ["", "to"]), TEXT),
    "numbers as windows": (record([80], ["t"]), "expected valid samples of 'ann'"),
    "lists as windows": (record([[*WINDOW]], ["t"]), "expected valid samples of 'ann'"),
    "numbers as targets": (record([WINDOW], [7]), "expected valid samples of 'ann'"),
}


def write_splits(root, name):
    samples = (INK, [1, 2]) if name == "femnist" else ([WINDOW], ["t"])
    for part in ("train", "test"):
        write_leaf(root / name / part, {"ann": samples})
    return root / name / "train" / "all_data.json"


@pytest.mark.parametrize(("content", "words"), as_cases(FEMNIST))
def test_a_damaged_femnist_file_is_refused(tmp_path, content, words):
    file = write_splits(tmp_path, "femnist")
    file.write_bytes(content)
    check_refused("femnist", tmp_path, words, tmp_path / "femnist")


@pytest.mark.parametrize(("content", "words"), as_cases(SHAKESPEARE))
def test_a_damaged_shakespeare_file_is_refused(tmp_path, content, words):
    file = write_splits(tmp_path, "shakespeare")
    file.write_bytes(content)
    check_refused("shakespeare", tmp_path, words, file)


def test_what_is_not_a_file_of_a_possible_size_is_not_read(tmp_path):
    file = write_splits(tmp_path, "femnist")
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    check_refused("femnist", tmp_path, "it has 1,099,511,627,776 bytes", file)
    file.unlink()
    check_refused("femnist", tmp_path, "LEAF's JSON files with at least one sample", file.parent)
    file.mkdir()
    check_refused("femnist", tmp_path, "it is not a regular file", file)
    file.rmdir()
    file.symlink_to(tmp_path / "nowhere")
    check_refused("femnist", tmp_path, "cannot be read: No such file", tmp_path / "femnist")


def test_users_without_samples_are_ignored(tmp_path):
    file = write_splits(tmp_path, "femnist")
    users = {"eve": {"x": [], "y": []}, "ann": {"x": INK, "y": [1, 2]}}
    file.write_text(json.dumps({"users": list(users), "user_data": users}))
    assert load_dataset("femnist", tmp_path).users.tolist() == [0, 0]
