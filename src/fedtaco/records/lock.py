"""One process at a time in a folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedtaco.errors import InvalidInput
from fedtaco.records.files import storage

LOCK = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out; the kernel lets them in when this one ends, however that happens.

    The lock is a record lock: forked workers, who may outlive a killed parent by a moment, do not have it.
    """
    with storage(folder):
        new = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("w")
    with file:
        if not _is_ours(file.fileno(), folder / LOCK):
            raise InvalidInput(f"Another process is at work in {folder}; let it end, or choose another folder (out).")
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / LOCK).unlink()
                for empty in new:
                    empty.rmdir()


def _is_ours(descriptor: int, path: Path) -> bool:
    """Whether the lock could be had, or neither system nor disk knows locks."""
    try:
        import fcntl

        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return True
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
