"""Processes: how many workers to start, how they end, how errors are sent between them, and short-lived ones."""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic, strftime
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")

TERMINATED = 128 + signal.SIGTERM
"""Exit code after SIGTERM, as shells state it."""
RETRY_SECONDS = 0.1
"""Seconds until a SIGTERM whose KeyboardInterrupt was lost is sent again."""
CHECK_SECONDS = 1.0
"""Seconds between two checks whether processes are stopped."""
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a run: Ctrl-C and SIGTERM."""


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_fork() -> bool:
    """Return whether this platform can fork processes that end with their parent; only Linux can."""
    return sys.platform.startswith("linux")


def set_up_child(parent: int) -> None:
    """Prepare a process that was forked inside :func:`postponed_interrupts`.

    It ends with its parent and at SIGTERM, also one that has arrived since the fork, and leaves Ctrl-C to its parent.
    """
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)


def die_with(parent: int) -> None:
    """Ask the kernel to end this process when its parent ends, however that happens."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


@contextmanager
def interrupted_by_sigterm() -> Iterator[Callable[[], bool]]:
    """Let SIGTERM raise KeyboardInterrupt inside the block, so that it ends a run as Ctrl-C does.

    Further ones are ignored, so that they do not interrupt the writing of the last checkpoint. If the KeyboardInterrupt
    is lost, because Python ignores errors in functions such as ``__del__``, the signal is sent again.

    Yields
    ------
    callable
        Returns whether SIGTERM has arrived.
    """
    received: list[int] = []
    report_ignored = sys.unraisablehook

    def interrupt(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        received.append(number)
        raise KeyboardInterrupt

    def send_again(ignored: Any) -> None:
        if received and ignored.exc_type is KeyboardInterrupt:
            signal.signal(signal.SIGTERM, interrupt)
            threading.Timer(RETRY_SECONDS, os.kill, (os.getpid(), signal.SIGTERM)).start()
        else:
            report_ignored(ignored)

    before = signal.signal(signal.SIGTERM, interrupt)
    sys.unraisablehook = send_again
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.unraisablehook = report_ignored


@contextmanager
def postponed_interrupts() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until the end of the block, in which a process is forked and stored.

    Without it, KeyboardInterrupt may be raised in Python's own functions around a fork, which ignore it, in the new
    process, or before this process has stored the new one. The new process starts with both signals blocked, until it
    calls :func:`set_up_child`.
    """
    handlers: dict[signal.Signals, Any] = {}
    received: list[int] = []
    try:
        if threading.current_thread() is threading.main_thread():
            for number in INTERRUPTS:  # which another thread may receive if this one blocks them
                if callable(handler := signal.getsignal(number)):
                    handlers[number] = handler
                    signal.signal(number, lambda got, _: received.append(got))
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for got in received:
            signal.raise_signal(got)


class ProcessMonitor:
    """Waits for messages of forked processes, and warns of those that are stopped and cannot send any."""

    def __init__(self) -> None:
        self._stopped: set[int | None] = set()
        self._next_check = 0.0

    def wait(
        self, running: Mapping[Connection, BaseProcess], describe: Callable[[Connection], str]
    ) -> list[Connection]:
        """Wait until a process has sent something or has ended, and return the connections of all such processes.

        Parameters
        ----------
        running
            The process at the other end of each connection.
        describe
            Returns what a process is, for the warning.
        """
        ready: list[Any] = []
        while not ready:
            ready = wait(list(running), CHECK_SECONDS)
            if monotonic() >= self._next_check:
                self._next_check = monotonic() + CHECK_SECONDS
                self._warn_of_stopped(running, describe)
        return ready

    def _warn_of_stopped(
        self, running: Mapping[Connection, BaseProcess], describe: Callable[[Connection], str]
    ) -> None:
        stopped = {process.pid: link for link, process in running.items() if _is_stopped(process)}
        known, self._stopped = self._stopped, set(stopped)
        for pid in stopped.keys() - known:
            warnings.warn(
                f"Process {pid}, {describe(stopped[pid])}, has been stopped since {strftime('%H:%M:%S')} and does not "
                f"answer. Let it continue (kill -CONT {pid}), or end everything with Ctrl-C.",
                RuntimeWarning,
                stacklevel=3,
            )


def _is_stopped(process: BaseProcess) -> bool:
    """Return whether a process was stopped by a signal, such as SIGSTOP, and not continued."""
    try:
        status = Path(f"/proc/{process.pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] == "T"


def terminate(process: BaseProcess) -> None:
    """Send SIGTERM to a process; if it is stopped, continue it, since it would not notice the signal otherwise."""
    process.terminate()
    if process.pid is not None and process.exitcode is None:
        os.kill(process.pid, signal.SIGCONT)


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
    children: dict[Connection, BaseProcess] = {}
    results: dict[int, Result] = {}
    monitor = ProcessMonitor()
    try:
        for share in shares[1:]:
            _fork_share(function, share, children)
        results |= {number: function(number) for number in shares[0]}
        for (link, process), share in zip(children.items(), shares[1:], strict=True):
            monitor.wait({link: process}, lambda _: "which evaluates a model")
            results |= _receive(link) or {number: function(number) for number in share}
    finally:
        for link, process in children.items():
            process.kill()
            process.join()
            link.close()
    return [results[number] for number in range(count)]


def _fork_share(function: Callable[[int], Result], share: range, children: dict[Connection, BaseProcess]) -> None:
    """Start a process that computes a share of the results; add it to ``children``, by the pipe to read them from."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_compute_share, args=(function, share, sender, os.getpid()), daemon=True)
    with postponed_interrupts():
        process.start()
        children[receiver] = process
    sender.close()


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
