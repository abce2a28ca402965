"""Worker processes: how many to start, how to end them with their parent, and how to send errors between them."""

import ctypes
import os
import pickle
import signal
import sys


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_fork() -> bool:
    """Return whether processes can be forked that end with this one: on Linux."""
    return sys.platform.startswith("linux")


def die_with(parent: int) -> None:
    """Ask the kernel to end this process when its parent ends, however that happens."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def picklable(error: Exception) -> Exception:
    """Return the error, with its notes, or a RuntimeError in its place if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        replacement = RuntimeError(f"{type(error).__name__}: {error}")
        replacement.__notes__ = getattr(error, "__notes__", [])
        return replacement
    return error
