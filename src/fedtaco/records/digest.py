"""Size and SHA-256 of files, by which a damaged file is noticed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


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

    def verify(self, path: Path) -> None:
        """Raise ValueError if a file is not the one that this digest was made of."""
        require_file(path)
        if FileDigest.of(path) != self:
            raise changed()


def require_file(path: Path) -> None:
    """Raise ValueError if ``path`` does not exist or is not a regular file."""
    if not path.is_file():
        raise ValueError("it is not a regular file" if path.exists() else "it is missing")


def changed() -> ValueError:
    """Return the error for a file that is not as it was written."""
    return ValueError("it has changed since the run wrote it")
