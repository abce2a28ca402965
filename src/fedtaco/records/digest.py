"""Size and SHA-256 of files, by which a damaged file is noticed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = 1 << 20
"""Number of bytes that are hashed at a time."""


@dataclass(frozen=True)
class FileDigest:
    """Size and SHA-256 of a file, or of its beginning."""

    size: int
    """Number of bytes."""
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileDigest:
        """Return the digest of a whole file."""
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            return cls(file.tell(), sha256)

    def verify(self, path: Path, *, is_whole: bool = True) -> Any:
        """Raise ValueError if a file has changed; return the state of SHA-256 after the verified bytes.

        Parameters
        ----------
        path
            The file.
        is_whole
            Whether the file must end after the bytes of which this digest was made.
        """
        require_file(path)
        sha256, remaining = hashlib.sha256(), self.size
        with path.open("rb") as file:
            while remaining > 0 and (block := file.read(min(BLOCK, remaining))):
                sha256.update(block)
                remaining -= len(block)
            if sha256.hexdigest() != self.sha256 or (is_whole and file.read(1)):
                raise changed()
        return sha256


def require_file(path: Path) -> None:
    """Raise ValueError if ``path`` does not exist or is not a regular file."""
    if not path.is_file():
        raise ValueError("it is not a regular file" if path.exists() else "it is missing")


def changed() -> ValueError:
    """Return the error for a file that is not as it was written."""
    return ValueError("it has changed since the run wrote it")
