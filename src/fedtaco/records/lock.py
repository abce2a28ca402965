"""A lock that lets only one process at a time use a folder."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fedtaco.errors import InvalidInput
from fedtaco.files import writing_run

LOCK = "lock"


@dataclass(frozen=True)
class FolderLock:
    """An acquired lock: an open file, and the path that must still be this file."""

    descriptor: int
    path: Path

    def is_held(self) -> bool:
        """Return whether the lock file is still in place; if not, another process may have acquired a new one."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), self.path.stat())
        except OSError:
            return False

    def require(self) -> None:
        """Raise InvalidInput if the lock file was removed or replaced."""
        if not self.is_held():
            raise InvalidInput(
                f"{self.path} was removed or replaced while this run was using the folder, so another process may be "
                "writing there; this run stops. Make sure that no other process uses the folder, and continue "
                "the run (resume)."
            )


@contextmanager
def locked(folder: Path) -> Iterator[FolderLock]:
    """Lock a folder, which is created if needed; the kernel releases the lock however this process ends.

    It is a record lock, which forked workers do not inherit: a worker that outlives its killed parent for a moment
    does not keep the folder locked.

    Raises
    ------
    InvalidInput
        If another process has locked the folder, or it cannot be written.
    """
    with writing_run(folder):
        created = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a")
    with file:
        lock = FolderLock(file.fileno(), folder / LOCK)
        if not _acquire(lock):
            raise InvalidInput(
                f"Another process is using {folder}; wait for it to end, or choose another folder (out)."
            )
        try:
            yield lock
        finally:
            if lock.is_held():
                with suppress(OSError):
                    lock.path.unlink()
                    for one in created:
                        one.rmdir()


def _acquire(lock: FolderLock) -> bool:
    """Try to acquire a lock; return ``False`` if another process has acquired it, or has removed the file meanwhile.

    Without support for locks by the operating system or file system, return ``True``.
    """
    try:
        import fcntl

        fcntl.lockf(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return True
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return lock.is_held()
