"""Files of JSON lines to which a run appends records, with a digest of everything that was appended."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtaco.errors import InvalidInput
from fedtaco.files import SCHEMA, reading_run
from fedtaco.records.digest import FileDigest
from fedtaco.records.documents import MAX_BYTES, STRICT_JSON

_JSON = json.JSONEncoder(allow_nan=False)


class RecordFile:
    """A file of records, one JSON object per line; its digest is updated as lines are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size, self._sha256 = 0, hashlib.sha256()

    @property
    def digest(self) -> FileDigest:
        """Digest of all lines, including those after which :meth:`rewind` continued."""
        return FileDigest(self._size, self._sha256.hexdigest())

    def create(self) -> None:
        """Create the file, without any line."""
        self.path.write_bytes(b"")
        self._size, self._sha256 = 0, hashlib.sha256()

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows; if the disk is full, remove any part of them that was written.

        Raises
        ------
        InvalidInput
            If another process has changed the file.
        """
        data = "".join(f"{_JSON.encode({'schema': SCHEMA, **row})}\n" for row in rows).encode()
        remaining = memoryview(data)
        with self.path.open("ab", buffering=0) as file:
            if file.tell() != self._size:
                raise InvalidInput(
                    f"Another process has changed {self.path}; end that process, and continue this run (resume)."
                )
            try:
                while remaining:
                    remaining = remaining[file.write(remaining) :]
                os.fsync(file.fileno())
            except OSError:
                os.truncate(self.path, self._size)
                raise
        self._size += len(data)
        self._sha256.update(data)

    def rewind(self, expected: FileDigest) -> None:
        """Remove everything after the lines with this digest, and continue after them."""
        with reading_run(self.path):
            sha256 = expected.verify(self.path, is_whole=False)
        os.truncate(self.path, expected.size)
        self._size, self._sha256 = expected.size, sha256

    def read(self, expected: FileDigest, *, is_whole: bool) -> Iterator[dict[str, Any]]:
        """Verify the beginning of the file, and then yield its rows one at a time.

        Parameters
        ----------
        expected
            Size and digest of these rows.
        is_whole
            Whether the file must not contain anything else.

        Raises
        ------
        InvalidInput
            If the rows are not those that were appended.
        """
        with reading_run(self.path):
            expected.verify(self.path, is_whole=is_whole)
            with self.path.open("rb") as file:
                while file.tell() < expected.size:
                    row = STRICT_JSON.decode(file.readline(MAX_BYTES).decode())
                    del row["schema"]
                    yield row
