"""Change the content of run folders, and correct every checksum and digest."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
from safetensors.numpy import load_file, save_file

from fedtaco.files import SCHEMA
from fedtaco.records.digest import FileDigest
from fedtaco.records.documents import read_document, write_document


def forge(folder, name, change):
    """Replace the content of a file by what ``change`` makes of it, and correct all checksums.

    The content is a mapping for TOML and JSON, a list of rows for records, and a mapping of arrays for other files.
    """
    path = folder / name
    if path.suffix in (".toml", ".json"):
        content = read_document(path)
        change(content)
        write_document(path, content)
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        change(rows)
        path.write_text("".join(json.dumps({"schema": SCHEMA, **row}) + "\n" for row in rows))
    elif path.suffix == ".npz":
        with np.load(path) as stored:
            arrays = dict(stored)
        change(arrays)
        np.savez(path, **arrays)
    else:
        arrays = load_file(path)
        change(arrays)
        save_file(arrays, path)
    correct_digests(folder, except_for=name)


def correct_digests(folder, except_for=None):
    """Make the digests in a folder's files those of its other files; ``except_for`` is written already."""
    partition = digest_of(folder / "partition.npz")
    rewrite(folder / "config.toml", except_for, lambda content: content["folder"].update(partition=partition))

    def correct_manifest(content):
        content["files"] = {file: digest_of(folder / "checkpoint" / file) for file in content["files"]}

    rewrite(folder / "checkpoint" / "manifest.json", except_for, correct_manifest)
    rewrite(
        folder / "summary.json",
        except_for,
        lambda content: content.update(files={file: digest_of(folder / file) for file in content["files"]}),
    )


def rewrite(path, except_for, change):
    if path.exists() and path.name != (except_for or "").rpartition("/")[2]:
        content = read_document(path)
        change(content)
        write_document(path, content)


def digest_of(path):
    return dataclasses.asdict(FileDigest.of(path))
