"""Processes: how many workers to start, how they end, how errors are sent between them, and short-lived ones."""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")

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


def map_forked(function: Callable[[int], Result], count: int, workers: int) -> list[Result]:
    """Return ``[function(0), ..., function(count - 1)]``, computed by this process and forked ones.

    Forked processes have all data of this one without any transfer. What one of them did not return, because it was
    killed, is computed here.

    Parameters
    ----------
    function
        A function whose results can be pickled, and do not depend on which process computes them.
    count
        Number of calls.
    workers
        Maximum number of processes, including this one.

    Raises
    ------
    Exception
        Whatever ``function`` raises.
    """
    may_fork = can_fork() and not multiprocessing.current_process().daemon
    workers = max(1, min(workers, count)) if may_fork else 1
    shares = [range(first, count, workers) for first in range(workers)]
    children: list[tuple[BaseProcess, Connection]] = []
    results: dict[int, Result] = {}
    try:
        for share in shares[1:]:
            children.append(_fork_share(function, share))
        results |= {number: function(number) for number in shares[0]}
        for (_, link), share in zip(children, shares[1:], strict=True):
            results |= _receive(link) or {number: function(number) for number in share}
    finally:
        for process, link in children:
            process.terminate()
            process.join()
            link.close()
    return [results[number] for number in range(count)]


def _fork_share(function: Callable[[int], Result], share: range) -> tuple[BaseProcess, Connection]:
    """Start a process that computes a share of the results; return it and the end of the pipe to read them from."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_compute_share, args=(function, share, sender, os.getpid()), daemon=True)
    process.start()
    sender.close()
    return process, receiver


def _compute_share(function: Callable[[int], Result], share: range, sender: Connection, parent: int) -> None:
    set_up_child(parent)
    try:
        answer: dict[int, Result] | Exception = {number: function(number) for number in share}
    except Exception as error:
        answer = picklable(error)
    sender.send_bytes(pickle.dumps(answer))


def _receive(link: Connection) -> dict[int, Any] | None:
    """Return the results of a process, or ``None`` if it died; raise the error that it met."""
    try:
        answer: dict[int, Any] | Exception = pickle.loads(link.recv_bytes())
    except (EOFError, OSError):
        return None
    if isinstance(answer, Exception):
        raise answer
    return answer
