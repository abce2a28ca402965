"""Damaged or hostile parquet files in the layout of the hub."""

from __future__ import annotations

import io
import json
import struct
import zlib

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet
from refusal import HTML, as_cases

from fedtaco import InvalidInput
from fedtaco.data import fetch_dataset

FEATURES = {"image": {"_type": "Image"}, "label": {"names": [*"0123456789"], "_type": "ClassLabel"}}
METADATA = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
IMAGE = "an image cannot be decoded"
pytestmark = pytest.mark.usefixtures("temporary_hub_cache")


def png(width=28, height=28, format_="PNG"):
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (height, width), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, format_)
    return buffer.getvalue()


def png_bomb():
    """Return a small PNG file that announces 30,000 × 30,000 pixels."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(100_000))) + chunk(b"IEND", b"")


DAMAGES = {
    "an image of another size": ({"image": png(20, 30)}, "it has 20 × 30 pixels instead of 28 × 28"),
    "a decompression bomb": ({"image": png_bomb()}, IMAGE),
    "a cut image": ({"image": png()[:200]}, IMAGE),
    "an HTML page as an image": ({"image": HTML}, IMAGE),
    "an empty image": ({"image": b""}, IMAGE),
    "an image of another format": ({"image": png(format_="BMP")}, IMAGE),
    "no image": ({"image": None}, IMAGE),
    "a path instead of an image": ({"image": None, "path": "/etc/hostname"}, IMAGE),
    "no label": ({"label": None}, "the labels are not a list of whole numbers"),
    "the label 999": ({"label": 999}, "labels must be from 0 to 255, but one is 999"),
    "the label 10": ({"label": 10}, "training labels from 0 to 10; MNIST has the labels 0 to 9"),
    "a missing sample": ({"count": 9}, "holds 9 training samples of MNIST; 10 were published"),
    "no samples": ({"count": 0}, "MNIST could not be fetched"),
}


def write_parquet(folder, image=b"", label=0, path=None, count=10):
    """Write a training split whose last image or label is given, and a valid test split."""
    (folder / "data").mkdir(parents=True)
    for split in ("train", "test"):
        images, labels = [{"bytes": png(), "path": None}] * 10, [*range(10)]
        if split == "train":
            images[-1], labels[-1] = {"bytes": image, "path": path}, label
            images, labels = images[:count], labels[:count]
        kind = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
        schema = pyarrow.schema({"image": kind, "label": pyarrow.int64()}, METADATA)
        table = pyarrow.table({"image": images, "label": labels}, schema)
        parquet.write_table(table, folder / "data" / f"{split}-00000-of-00001.parquet")


@pytest.mark.parametrize(("values", "words"), as_cases(DAMAGES))
def test_a_damaged_split_is_not_saved(tmp_path, set_counts, values, words):
    set_counts("mnist", 10, 10)
    write_parquet(tmp_path / "hub", **{"image": png(), "label": 9} | values)
    with pytest.raises(InvalidInput, match=words) as error:
        fetch_dataset("mnist", tmp_path / "data", str(tmp_path / "hub"))
    assert str(error.value).isprintable()
    assert not (tmp_path / "data").exists()


def test_a_damaged_parquet_file_is_not_saved(tmp_path, set_counts):
    set_counts("mnist", 10, 10)
    write_parquet(tmp_path / "hub", png())
    (tmp_path / "hub" / "data" / "train-00000-of-00001.parquet").write_bytes(HTML)
    with pytest.raises(InvalidInput, match="MNIST could not be fetched from"):
        fetch_dataset("mnist", tmp_path / "data", str(tmp_path / "hub"))


def test_a_full_disk_is_reported(tmp_path, set_counts, monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    set_counts("mnist", 10, 10)
    write_parquet(tmp_path / "hub", png())
    monkeypatch.setattr("fedtaco.data.cache.save_file", refuse)
    with pytest.raises(InvalidInput, match=r"Cannot write to .*cache.mnist: No space left on device"):
        fetch_dataset("mnist", tmp_path / "data", str(tmp_path / "hub"))
