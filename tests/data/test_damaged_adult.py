"""Adult: damaged tables are refused, and a download is saved only if it is the published table."""

from __future__ import annotations

import io
import zipfile

import pytest
from published import adult_text, write_adult
from refusal import HTML, as_cases, check_refused

from fedtaco import InvalidInput
from fedtaco.data import fetch_dataset, load_dataset

COLUMNS = "expected the 15 columns of Adult in each line"
WHOLE = adult_text(200).encode()
LINES = WHOLE.splitlines(keepends=True)


def replaced(column, value):
    """Return the table with another value in the last line."""
    cells = LINES[-1].strip().split(b", ")
    cells[column] = value
    return b"".join([*LINES[:-1], b", ".join(cells), b"\n"])


TABLES = {
    "empty": (b"", COLUMNS),
    "HTML page": (HTML, COLUMNS),
    "comments only": (b"|1x3 Cross validator\n", COLUMNS),
    "random bytes": (bytes(range(256)) * 10, COLUMNS),
    "Latin-1": (replaced(13, "Côte".encode("latin-1")), "can't decode"),
    "UTF-8": (replaced(13, "Côte".encode()), "can't decode"),
    "UTF-16": (WHOLE.decode().encode("utf-16"), COLUMNS),
    "null bytes": (replaced(0, b"\0\0"), "a value of age is not a whole number"),
    "a column too few": (WHOLE + b"39, State-gov\n", "another number of columns"),
    "a column too many": (WHOLE + LINES[0].strip() + b", 1\n", "another number of columns"),
    "cut in the last line": (WHOLE[:-30], "another number of columns"),
    "an overlong value": (replaced(1, b"x" * 1_000_000), "an overlong value"),
    "an age that is no number": (replaced(0, b"old"), "a value of age is not a whole number"),
    "a negative age": (replaced(0, b"-1"), "a value of age is not a whole number"),
    "an age of nan": (replaced(0, b"nan"), "a value of age is not a whole number"),
    "an age of 1e400": (replaced(0, b"1e400"), "a value of age is not a whole number"),
    "an unknown capital gain": (replaced(10, b"?"), "a value of capital-gain is not a whole number"),
    "no capital loss": (replaced(11, b""), "a value of capital-loss is not a whole number"),
    "another income": (replaced(14, b"=50K"), "a value of income is neither <=50K nor >50K"),
    "quotes": (replaced(1, b'"unclosed'), r"inputs of shape \(200, 12[34]\)"),
    "a missing category": (WHOLE.replace(b"kind-40", b"kind-39"), r"inputs of shape \(200, 122\)"),
    "fewer rows": (b"".join(LINES[:150]), "holds 150 training samples of Adult.*; 200 were published"),
    "more rows": (WHOLE * 2, "holds 400 training samples"),
    "a file of impossible size": (WHOLE * 500, "bytes, more than 5,000,000"),
}


@pytest.fixture
def counts(set_counts):
    set_counts("adult", 200, 50)
    set_counts("adult:standardized", 200, 50)


@pytest.mark.parametrize(("content", "words"), as_cases(TABLES))
def test_a_damaged_table_is_refused(tmp_path, counts, content, words):
    write_adult(tmp_path / "adult", 200, 50)
    (tmp_path / "adult" / "adult.data").write_bytes(content)
    check_refused("adult", tmp_path, words, tmp_path / "adult")


@pytest.mark.parametrize("name", ["adult", "adult:standardized"])
def test_a_whole_table_is_read(tmp_path, counts, name):
    write_adult(tmp_path / "adult", 200, 50)
    data = load_dataset(name, tmp_path)
    assert data.train.y[:5].tolist() == [1, 0, 0, 0, 1]
    assert data.test.x.shape == (50, *data.info.shape)


def zipped(compression=zipfile.ZIP_DEFLATED, **files):
    """Return an archive of both tables, in which some are replaced or, if ``None``, missing."""
    tables = {"data": WHOLE, "test": adult_text(50).encode()} | files
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in tables.items():
            if content is not None:
                archive.writestr(f"adult.{name}", content)
    return buffer.getvalue()


def encrypted():
    """Return an archive whose entries are marked as encrypted, in the local headers and in the directory."""
    content = bytearray(zipped())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        position = content.find(signature)
        while position >= 0:
            content[position + offset] |= 1
            position = content.find(signature, position + 1)
    return bytes(content)


def overwritten(signature, offset, replacement):
    """Return an archive with other bytes at an offset from its first header of a kind."""
    content = bytearray(zipped())
    start = content.index(signature) + offset
    content[start : start + len(replacement)] = replacement
    return bytes(content)


ARCHIVES = {
    "an HTML page": (HTML, "Adult could not be fetched from .*not a zip file"),
    "empty": (b"", "Adult could not be fetched"),
    "cut": (zipped()[:1000], "Adult could not be fetched"),
    "damaged data": (overwritten(b"PK\x03\x04", 60, b"\xff" * 20), "Adult could not be fetched"),
    "a wrong checksum": (overwritten(b"PK\x01\x02", 16, b"1234"), "Adult could not be fetched .*Bad CRC"),
    "encrypted": (encrypted(), "Adult could not be fetched .*encrypted"),
    "a zip bomb": (zipped(data=bytes(6_000_000)), "its content has more than 5,000,000 bytes"),
    "bzip2": (zipped(zipfile.ZIP_BZIP2), "a method that cannot be read in bounded memory"),
    "LZMA": (zipped(zipfile.ZIP_LZMA), "a method that cannot be read in bounded memory"),
    "one file only": (zipped(test=None), "it does not contain adult.test"),
    "larger than possible": (zipped() + bytes(5_000_000), "its content has more than 5,000,000 bytes"),
    "an HTML page as a table": (zipped(data=HTML), f"{COLUMNS} .*Nothing was saved"),
    "text as numbers": (zipped(data=replaced(0, b"old")), "a value of age .*Nothing was saved"),
    "fewer rows": (zipped(data=b"".join(LINES[:150])), "holds 150 training samples of Adult.*Nothing was saved"),
}


@pytest.mark.parametrize(("content", "words"), as_cases(ARCHIVES))
def test_an_invalid_archive_is_not_saved(tmp_path, counts, content, words):
    (tmp_path / "adult.zip").write_bytes(content)
    with pytest.raises(InvalidInput, match=words) as error:
        fetch_dataset("adult", tmp_path / "data", (tmp_path / "adult.zip").as_uri())
    assert str(error.value).isprintable()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["adult", "adult:standardized"])
def test_a_valid_archive_is_unpacked(tmp_path, counts, name):
    (tmp_path / "adult.zip").write_bytes(zipped())
    place = fetch_dataset(name, tmp_path / "data", (tmp_path / "adult.zip").as_uri())
    assert sorted(path.name for path in place.iterdir()) == ["adult.data", "adult.test"]
    assert len(load_dataset(name, tmp_path / "data").train) == 200


def test_a_folder_that_cannot_be_written_is_named(tmp_path, counts):
    (tmp_path / "adult.zip").write_bytes(zipped())
    (tmp_path / "data").write_text("a file where the data folder should be")
    with pytest.raises(InvalidInput, match=r"Cannot write to .*data.adult"):
        fetch_dataset("adult", tmp_path / "data", (tmp_path / "adult.zip").as_uri())
