"""Files with a checksum of their own: what is written is read back, and any change is noticed."""

from __future__ import annotations

import pytest

from fedtaco import InvalidInput
from fedtaco.records.documents import read_document, write_document

CONTENT = {"rate": 0.1, "seed": 3, "name": "groß", "inner": {"b": [1, 2], "a": "x"}}


@pytest.fixture(params=["config.toml", "summary.json"])
def document(request, tmp_path):
    write_document(tmp_path / request.param, CONTENT)
    return tmp_path / request.param


def test_content_is_read_back(document):
    assert read_document(document) == CONTENT


def test_keys_that_are_numbers_become_text(tmp_path):
    write_document(tmp_path / "summary.json", {"clients": {10: "a", 9: "b"}})
    assert read_document(tmp_path / "summary.json") == {"clients": {"10": "a", "9": "b"}}


def test_every_changed_character_is_noticed_or_changes_nothing(document):
    text = document.read_text()
    for place, letter in enumerate(text):
        document.write_text(text[:place] + ("7" if letter != "7" else "8") + text[place + 1 :])
        try:
            assert read_document(document) == CONTENT
        except InvalidInput as error:
            assert "damaged" in str(error) or "another version" in str(error)


def test_edited_value_is_refused_with_advice(document):
    document.write_text(document.read_text().replace("0.1", "0.2"))
    with pytest.raises(InvalidInput, match="it has changed since the run wrote it; restore it from a copy, or start"):
        read_document(document)


def test_format_may_change(document):
    document.write_text(document.read_text().replace("\n", "\n\n"))
    assert read_document(document) == CONTENT


def test_numbers_that_are_not_finite_are_not_written(tmp_path):
    for name in ("config.toml", "summary.json"):
        with pytest.raises(ValueError, match="JSON compliant"):
            write_document(tmp_path / name, {"rate": float("nan")})
        assert not (tmp_path / name).exists()
