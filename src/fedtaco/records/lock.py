"""A lock that keeps a folder to one process at a time."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedtaco.errors import InvalidInput
from fedtaco.records.files import writing_run

LOCK = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; the kernel releases the lock when this process ends in any way.

    The lock is a record lock, which forked workers do not inherit: they may outlive a killed parent by a moment.
    """
    with writing_run(folder):
        new = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("w")
    with file:
        if not _acquire(file.fileno(), folder / LOCK):
            raise InvalidInput(
                f"Another process is using {folder}; wait for it to end, or choose another folder (out)."
            )
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / LOCK).unlink()
                for empty in new:
                    empty.rmdir()


def _acquire(descriptor: int, path: Path) -> bool:
    """Return whether this process got the lock, or the system or disk does not support locks."""
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
