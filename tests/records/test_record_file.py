"""Files of records: their digest follows every line, and only these lines are read."""

from __future__ import annotations

import pytest

from fedtaco import InvalidInput
from fedtaco.records.digest import FileDigest
from fedtaco.records.record_file import RecordFile

ROWS = [{"round": number, "accuracy": number / 10} for number in range(1, 5)]


@pytest.fixture
def records(tmp_path):
    file = RecordFile(tmp_path / "rounds.jsonl")
    file.create()
    file.append(ROWS[:3])
    return file


def test_digest_is_that_of_the_file(records):
    for rows in ([], ROWS[3:], ROWS[:2]):
        records.append(rows)
        assert records.digest == FileDigest.of(records.path)


def test_later_lines_are_ignored_and_removed(records):
    before = records.digest
    records.append(ROWS[3:])
    assert list(records.read(before, is_whole=False)) == ROWS[:3]
    with pytest.raises(InvalidInput, match="has changed since"):
        list(records.read(before, is_whole=True))
    again = RecordFile(records.path)
    again.rewind(before)
    assert again.digest == before == FileDigest.of(records.path)
    again.append(ROWS[3:])
    assert list(records.read(records.digest, is_whole=True)) == ROWS


def test_reading_does_not_disturb_writing(records):
    before = records.digest
    records.append(ROWS[3:])
    list(records.read(before, is_whole=False))
    records.append(ROWS[:1])
    assert list(records.read(records.digest, is_whole=True)) == [*ROWS, ROWS[0]]


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1],
        lambda content: content[:10],
        lambda content: content.replace(b"0.1", b"0.7"),
        lambda content: content.replace(b"0.1", b"NaN"),
        lambda content: content.replace(b"0.1", b"0.11"),
        lambda content: content.replace(b'"schema": 6', b'"schema": 2'),
        lambda content: content.replace(b"\n", b" "),
        lambda content: b"\xff" + content[1:],
        lambda content: b"[]\n" + content,
    ],
)
def test_changed_lines_are_refused(change, records):
    records.path.write_bytes(change(records.path.read_bytes()))
    with pytest.raises(InvalidInput, match=r"rounds\.jsonl is damaged"):
        list(records.read(records.digest, is_whole=False))
    with pytest.raises(InvalidInput, match=r"rounds\.jsonl is damaged"):
        RecordFile(records.path).rewind(records.digest)


def test_lines_of_another_writer_are_noticed_before_appending(records):
    with records.path.open("a") as other:
        other.write("{}\n")
    with pytest.raises(InvalidInput, match=r"Another process has changed .*rounds\.jsonl"):
        records.append(ROWS[3:])


def test_incomplete_append_is_undone(records, monkeypatch):
    before = records.path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            records.append(ROWS[3:])
    assert records.path.read_bytes() == before
    records.append(ROWS[3:])
    assert list(records.read(records.digest, is_whole=True)) == ROWS
