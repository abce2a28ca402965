"""Folders with content that no run writes, although all checksums are right, and files that cannot be read at all."""

from __future__ import annotations

import os
import shutil
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from folder_damage import SETTINGS, shared_specimens
from forging import correct_digests, forge

import fedtaco
from fedtaco import InvalidInput
from fedtaco.records import RunFolder
from fedtaco.report.page_data import build_page_data

DEEP = 100_000
CONFIG = {
    "no clients": {"clients": 0},
    "clients beyond 64 bits": {"clients": 1 << 64},
    "clients as text": {"clients": "6"},
    "clients as truth value": {"clients": True},
    "rounds as fraction": {"rounds": 5.5},
    "negative seed": {"seed": -1},
    "huge target": {"target": 1e300},
    "method as number": {"method": 3},
    "dataset as list": {"dataset": ["digits"]},
    "model as number": {"model": 3},
    "nested parameters": {"parameters": {"taco.gamma": {"value": 1}}},
    "engine that does not exist": {"ran_by": {"engine": "zzz", "reason": "none"}},
    "no digest": {"folder": {"run": "abc"}},
}
GIVEN = {"data": "0" * 64, "input_shape": [1, 8, 8], "classes": 10}
OWN = {
    "model with more parameters than fit into memory": {"input_shape": [3, 60_000, 60_000]},
    "negative shape": {"input_shape": [3, -8, 8]},
    "no shape": {"input_shape": []},
    "shape as text": {"input_shape": "8"},
    "no classes": {"classes": 0},
    "classes as text": {"classes": "10"},
    "own model": {"weights": "0" * 64},
}
MANIFEST = {
    "round as text": {"round": "3"},
    "clients by name": {"clients": {"clients-3.safetensors": ["a"]}},
    "no records": {"records": {}},
    "records as list": {"records": []},
    "negative size": {"records": {"rounds.jsonl": {"size": -1, "sha256": ""}}},
    "unknown entry": {"surprise": 1},
    "run as number": {"run": 3},
}
ROUND = {
    "accuracy as text": {"accuracy": "high"},
    "accuracy as truth value": {"accuracy": True},
    "accuracy that is not finite": {"accuracy": float("nan")},
    "huge accuracy": {"accuracy": 1e300},
    "accuracy of 5000 digits": {"accuracy": 10**4000},
    "dropped by name": {"dropped": {"a": "why"}},
    "text that cannot be encoded": {"dropped": {"1": "\ud800"}},
    "decisions as numbers": {"decisions": [3]},
    "unknown entry": {"surprise": 1},
}
CLIENT = {
    "client as fraction": {"client": 0.0},
    "alpha as text": {"alpha": "high"},
    "infinite alpha": {"alpha": float("inf")},
    "scores as number": {"scores": 3},
    "expelled as number": {"expelled": 1},
    "strikes beyond 64 bits": {"strikes": 1 << 70},
    "unknown entry": {"surprise": 1},
}
PARTITION = {
    "counts as fractions": {"label_counts": np.ones((6, 10))},
    "counts in one dimension": {"label_counts": np.ones(6, dtype=np.int64)},
    "pickled objects": {"groups": np.array([{}] * 6)},
    "another array": {"surprise": np.ones(3)},
}


@pytest.fixture
def unfinished(tmp_path):
    return shutil.copytree(shared_specimens().unfinished, tmp_path / "unfinished")


@pytest.fixture
def finished(tmp_path):
    return shutil.copytree(shared_specimens().finished, tmp_path / "finished")


def resume(folder):
    fedtaco.run("scaffold", out=folder, resume=True, **SETTINGS)


def report(folder):
    build_page_data([RunFolder(folder)])


def refuse(folder, *actions):
    for action in actions:
        with pytest.raises(InvalidInput):
            action(folder)


def cases(crafted):
    return pytest.mark.parametrize("change", [pytest.param(change, id=name) for name, change in crafted.items()])


@cases(CONFIG)
def test_crafted_configuration(change, unfinished):
    forge(unfinished, "config.toml", lambda content: content.update(change))
    refuse(unfinished, resume)


@cases(OWN)
def test_crafted_own_data(change, finished):
    """A run on data of a user's own, whose model is built from what the configuration says about them."""
    forge(finished, "config.toml", lambda content: content.update(own={**GIVEN, **change}))
    refuse(finished, fedtaco.load, resume)


@cases(MANIFEST)
def test_crafted_manifest(change, unfinished):
    forge(unfinished, "checkpoint/manifest.json", lambda content: content.update(change))
    with suppress(InvalidInput):
        report(unfinished)
    refuse(unfinished, resume)


@cases(ROUND)
def test_crafted_round(change, finished):
    forge(finished, "rounds.jsonl", lambda rows: rows[0].update(change))
    refuse(finished, report)


@cases(CLIENT)
def test_crafted_client(change, finished):
    forge(finished, "clients.jsonl", lambda rows: rows[0].update(change))
    refuse(finished, report, fedtaco.load)


@cases(PARTITION)
def test_crafted_partition(change, finished):
    forge(finished, "partition.npz", lambda arrays: arrays.update(change))
    refuse(finished, report, fedtaco.load)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("shared-3", lambda arrays: arrays.update({"state/weights": arrays["state/weights"][1:]})),
        ("shared-3", lambda arrays: arrays.pop("server/variate")),
        ("shared-3", lambda arrays: arrays.update({"server/variate": arrays["server/variate"][1:]})),
        ("shared-3", lambda arrays: arrays.update({"server/variate": np.ones(3, dtype=np.int64)})),
        ("shared-3", lambda arrays: arrays.update({"detector/starts": np.ones((1, 1, 1))})),
        ("clients-3", lambda arrays: arrays.update({"zero/variate": np.ones(3)})),
        ("clients-3", lambda arrays: arrays.update({key: array[1:] for key, array in arrays.items()})),
        ("clients-3", lambda arrays: [arrays.update({f"{key}s": arrays.pop(key)}) for key in list(arrays)]),
    ],
)
def test_crafted_checkpoint(file, change, unfinished):
    forge(unfinished, f"checkpoint/{file}.safetensors", change)
    refuse(unfinished, resume)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.toml", "schema = 6\na = " + "[" * DEEP),
        ("config.toml", "schema = 6\na." + "b." * DEEP + "c = 1"),
        ("config.toml", "schema = 6\na." + "b." * 300 + "c = 1"),
        ("config.toml", "schema = 6\na = {" + "b." * 300 + "c = 1}"),
        ("config.toml", "schema = 6\ndataset = 2026-01-01"),
        ("config.toml", "schema = 6\nclients = " + "1" * 5000),
        ("config.toml", "schema = 6\na = [" + "[" * 30 + "]" * 30 + "]"),
        ("summary.json", '{"schema": 6, "a": ' + "[" * DEEP),
        ("summary.json", "[" * DEEP + "]" * DEEP),
        ("summary.json", '{"schema": 6, "rounds": NaN}'),
        ("summary.json", '{"schema": 6, "rounds": ' + "1" * 5000 + "}"),
        ("summary.json", "\ud800"),
        ("rounds.jsonl", '{"a": ' * DEEP + "\n"),
        ("clients.jsonl", "[" * DEEP + "\n"),
    ],
)
def test_text_that_cannot_be_parsed(name, content, finished):
    (finished / name).write_bytes(content.encode(errors="surrogatepass"))
    refuse(finished, report, fedtaco.load, resume)


def test_files_and_lines_that_are_too_large(finished, monkeypatch):
    monkeypatch.setattr("fedtaco.records.documents.MAX_BYTES", 100)
    with pytest.raises(InvalidInput, match=r"config\.toml is damaged: it has more than 100 bytes; restore it"):
        report(finished)
    monkeypatch.undo()
    monkeypatch.setattr("fedtaco.records.record_file.MAX_BYTES", 100)
    with pytest.raises(InvalidInput, match=r"rounds\.jsonl is damaged"):
        report(finished)


def test_partition_that_declares_more_than_it_may_contain(finished):
    """The array would need 8 TB; the file has a few bytes of it."""
    with np.load(finished / "partition.npz") as stored:
        arrays = dict(stored)
    with zipfile.ZipFile(finished / "partition.npz", "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                shape = (10**12,) if name == "indices" else array.shape
                header = {"descr": array.dtype.str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                member.write(array.tobytes())
    correct_digests(finished)
    with pytest.raises(InvalidInput, match=r"partition\.npz is damaged: indices is too large; restore it"):
        report(finished)


@pytest.mark.parametrize("name", ["config.toml", "partition.npz", "rounds.jsonl", "clients.jsonl", "summary.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_something_else_in_place_of_a_file(name, make, finished):
    (finished / name).unlink()
    make(finished / name)
    refuse(finished, report, fedtaco.load, resume)


@pytest.mark.parametrize("name", ["rounds.jsonl", "lock", "config.toml.part", "checkpoint/shared-9.safetensors.part"])
def test_links_to_other_files_are_not_followed_when_writing(name, unfinished, tmp_path):
    (tmp_path / "precious").write_text("years of work")
    (unfinished / name).unlink(missing_ok=True)
    (unfinished / name).symlink_to(tmp_path / "precious")
    with pytest.raises(InvalidInput, match="is not a plain file or folder; remove it, or choose another"):
        resume(unfinished)
    with pytest.raises(InvalidInput, match="is not a plain file or folder"):
        fedtaco.run("scaffold", out=unfinished, overwrite=True, **SETTINGS)
    assert (tmp_path / "precious").read_text() == "years of work"


def test_link_to_another_folder_is_not_emptied(unfinished, tmp_path):
    shutil.copytree(unfinished / "checkpoint", tmp_path / "precious")
    (tmp_path / "precious" / "thesis.tex").write_text("years of work")
    shutil.rmtree(unfinished / "checkpoint")
    (unfinished / "checkpoint").symlink_to(tmp_path / "precious")
    refuse(unfinished, resume)
    assert (tmp_path / "precious" / "thesis.tex").exists()
