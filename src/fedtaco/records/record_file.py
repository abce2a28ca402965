"""Files of JSON lines to which a run appends records, with a digest of everything that was appended."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtaco.errors import InvalidInput
from fedtaco.files import SCHEMA, reading_run
from fedtaco.records.digest import FileDigest, changed, require_file
from fedtaco.records.documents import MAX_BYTES, STRICT_JSON

BLOCK = 1 << 20
"""Number of bytes that are hashed at a time."""
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
        sha256 = hashlib.sha256()
        with reading_run(self.path), self.path.open("rb") as file:
            for start in range(0, expected.size, BLOCK):
                sha256.update(file.read(min(BLOCK, expected.size - start)))
            if sha256.hexdigest() != expected.sha256:
                raise changed()
        os.truncate(self.path, expected.size)
        self._size, self._sha256 = expected.size, sha256

    def read(self, expected: FileDigest, *, is_whole: bool) -> Iterator[dict[str, Any]]:
        """Yield the rows at the beginning of the file that have the expected digest.

        The digest is known, and compared, only after the last row.

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
        size, sha256 = 0, hashlib.sha256()
        with reading_run(self.path):
            require_file(self.path)
            with self.path.open("rb") as file:
                while size < expected.size:
                    line = file.readline(MAX_BYTES)
                    size += len(line)
                    if not line.endswith(b"\n") or size > expected.size:
                        raise changed()
                    sha256.update(line)
                    yield _parse_line(line)
                if is_whole and file.read(1):
                    raise changed()
            if sha256.hexdigest() != expected.sha256:
                raise changed()


def _parse_line(line: bytes) -> dict[str, Any]:
    row = STRICT_JSON.decode(line.decode())
    if not isinstance(row, dict):
        raise ValueError("it contains a line that is not a record")
    if row.pop("schema", None) != SCHEMA:
        raise ValueError("it contains a line of another version of fedtaco")
    return row
