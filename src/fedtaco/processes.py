"""Processes: how many workers to start, how they end, and how errors are sent between them."""

import ctypes
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = 128 + signal.SIGTERM
"""Exit code after SIGTERM, as shells state it."""


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_fork() -> bool:
    """Return whether this platform can fork processes that end with their parent; only Linux can."""
    return sys.platform.startswith("linux")


def set_up_child(parent: int) -> None:
    """Prepare a forked process: it ends with its parent and at SIGTERM, and leaves Ctrl-C to its parent."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def die_with(parent: int) -> None:
    """Ask the kernel to end this process when its parent ends, however that happens."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


@contextmanager
def interrupted_by_sigterm() -> Iterator[Callable[[], bool]]:
    """Let SIGTERM raise KeyboardInterrupt inside the block, so that it ends a run as Ctrl-C does.

    Further ones are ignored, so that they do not interrupt the writing of the last checkpoint.

    Yields
    ------
    callable
        Returns whether SIGTERM has arrived.
    """
    received: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGTERM, before)


def picklable(error: Exception) -> Exception:
    """Return the error itself, or a RuntimeError with its message and notes if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        replacement = RuntimeError(f"{type(error).__name__}: {error}")
        replacement.__notes__ = getattr(error, "__notes__", [])
        return replacement
    return error
